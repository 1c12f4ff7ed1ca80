"""clew ask, mcp: answers with their sources, and what agents call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli import options, terminal
from clew.cli.terminal import ReportWordsCommand
from clew.cli.view import clean_lines, one_line
from clew.engine import find_root
from clew.errors import needs_extra

if TYPE_CHECKING:
    from clew.ask import AskResult, Searchable, Sentence

NOT_IN_FILES = 3
"""The exit code where there is no answer."""


# ---------------------------------------------------------------------- ask


@click.command(cls=ReportWordsCommand)
@click.argument("question", nargs=-1, required=True)
@click.option("--limit", "-n", default=8, show_default=True, help="How many passages are read.")
@click.option(
    "--token-budget", default=3000, show_default=True, help="How much of them, in tokens."
)
@click.option("--quote", is_flag=True, help="Ask no chat model: quote the best sentences.")
@click.option("--seconds", default=60.0, show_default=True, help="How long a chat model may take.")
@options.filter_options
@options.include_personal
@options.store_folder
@click.option(
    "--db",
    type=options.MemoryPath(path_type=Path),
    help="Ask this memory; with --store both.",
)
@click.option("--namespace", help="Whose memories. Default: default.")
def ask(
    question: tuple[str, ...],
    store: Path | None,
    db: Path | str | None,
    namespace: str | None,
    **chosen: Any,
) -> None:
    """Answer a question from your files, each sentence with its source.

    A chat model writes the answer if one is set (`clew config llm`, `clew config llm_url`); else
    the best sentences are quoted. A sentence that its source does not hold is marked with (?).
    Where no hit can be trusted the answer is "Not in your files.", and the exit code 3.

    Example: clew ask how long does the epoxy cure at 18 degrees
    """
    if namespace is not None and db is None:
        raise click.UsageError("--namespace is of memories: give --db as well")
    words = " ".join(question)
    wanted = options.take_filter(chosen)
    if wanted and db is not None and store is None:
        raise click.UsageError("--tag and the other filters are of folders: give --store as well")
    as_json = click.get_current_context().meta["json"]
    places: list[Searchable] = []
    if db is not None:
        places.append(options.open_memory(db, first_query=words))
    if db is None or store is not None:
        places.insert(0, options.open_existing(store, first_query=words))
    from clew.ask import AskResult, Citation, stream_answer

    answer: AskResult | None = None
    for said in stream_answer(places, words, filter=wanted, namespace=namespace, **chosen):
        if isinstance(said, AskResult):
            answer = said
        elif not isinstance(said, Citation) and not as_json:
            print_sentence(said)
    for place in places:
        place.close()
    assert answer is not None
    if as_json:
        terminal.print_json(answer.to_dict())
    else:
        print_sources(answer)
    if not answer.found:
        raise SystemExit(NOT_IN_FILES)


def print_sentence(sentence: Sentence) -> None:
    numbers = "".join(f"[{number}]" for number in sentence.citations)
    text = clean_lines(sentence.text)
    said = f"“{text}”" if sentence.line is not None and "\n" not in text else text
    mark = "" if sentence.supported else f" (? {one_line(sentence.problem)})"
    print(f"{said}{f' {numbers}' if numbers else ''}{mark}", flush=True)


def print_sources(answer: AskResult) -> None:
    """The places that can be opened, each once; what went wrong goes to standard error."""
    from clew.ask import NOT_FOUND

    if not answer.found:
        print(NOT_FOUND)
    if answer.citations:
        print()
        print("Sources:" if answer.found else "Nearest, and not an answer:")
    quoted = {n: s.line for s in reversed(answer.sentences) for n in s.citations}
    for each in answer.citations:
        line = quoted.get(each.number)
        place = f"{each.path}, line {line}" if line is not None else each.place
        title = f"  {one_line(each.title)}" if each.title else ""
        print(f"  [{each.number}] {one_line(place)}{title}")
    for problem in answer.degraded:
        print(f"clew: {clean_lines(problem)}", file=sys.stderr)


# ---------------------------------------------------------------------- mcp


@click.command()
@options.store_folder
@options.memory_file
@click.option(
    "--namespace",
    help="Bind the server to this namespace of the memory: no call reaches another. A folder is "
    "searched then only where --store names one.",
)
@options.include_personal
@click.option("--http", is_flag=True, help="Speak streamable HTTP at /mcp, for several clients.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address.")
@click.option(
    "--port",
    default=7374,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="With --http: the port; 0: any.",
)
@options.token_option
@options.token_file
def mcp(
    store: Path | None,
    db: Path | str,
    namespace: str | None,
    include_personal: bool,
    http: bool,
    host: str,
    port: int,
    token: str | None,
    token_file: Path | None,
) -> None:
    """Serve agents over the Model Context Protocol, on standard input and output.

    The tools are search, get, related and ask over the nearest store, and remember, recall, forget
    and supersede over the memory --db, which the first memory makes. Clients start it by
    themselves: `clew setup CLIENT` tells them how. Inside `clew serve` it is at /mcp.

    Example: clew mcp --store ~/notes --db ~/memory.db
    """
    asked = click.get_current_context().get_parameter_source
    typed = click.core.ParameterSource.COMMANDLINE
    of_http = [n for n in ("host", "port", "token", "token_file") if asked(n) is typed]
    if of_http and not http:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in of_http)
        raise click.UsageError(
            f"{said}: of a server that is asked over HTTP, so say --http as well"
        )
    with needs_extra("serve", "MCP"):
        from clew.serve.mcp import create_mcp_app, run_stdio
        from clew.serve.tools import AgentTools, LazyMemory
    if namespace is not None:
        from clew.memory.record import check_namespace

        namespace = check_namespace(namespace)
    root = store or (find_root() if namespace is None else None)
    engine = None if root is None else options.open_existing(root)
    memory = LazyMemory(db, exists=lambda: options.memory_exists(db), namespace=namespace)
    tools = AgentTools(engine, memory, namespace=namespace, include_personal=include_personal)
    try:
        if http:
            from clew.serve.guard import Guard
            from clew.serve.server import check_address, run_server

            token = options.read_token(token, token_file)
            check_address(host, token)
            app = Guard(create_mcp_app(tools), token=token, hosts=(host,))
            run_server(app, host=host, port=port)
        else:
            run_stdio(tools)
    finally:
        memory.close()
        if engine is not None:
            engine.close()
