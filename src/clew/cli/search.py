"""clew search, get, lookup: records come back. `run_search` is the same for scripts and agents."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from clew.cli import options, terminal, view
from clew.cli.terminal import Form
from clew.cli.view import INDENT, AnswerView, HitView, Line, Places, line
from clew.engine import Engine, agentic_search, open_engine
from clew.errors import InputError, counted
from clew.filter import Filter
from clew.text.parse import parse
from clew.types import Hit, Mode, Record, SearchResult
from clew.validate import guarded

if TYPE_CHECKING:
    from clew.lookup import ExternalLookupResult

DECOMPOSERS = {"rules": "by rules", "llm": "by the chat model"}
PATIENCE = 60.0
"""Seconds of a lookup: it begins with nothing read, and who waits at a terminal wants all of it."""


@click.command(cls=options.WordsCommand)
@click.argument("query", nargs=-1)
@click.option("--limit", "-n", default=10, show_default=True, help="How many results.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or both.",
)
@options.filter_options
@click.option("--source", multiple=True, help="Ask only this source: keyword, vectors.")
@click.option("--passages", is_flag=True, help="Each passage for itself: many of one long file.")
@click.option(
    "--group-by",
    type=click.Choice(["passage", "record"]),
    help="One hit a record, or also its further passages that win on their own (the default).",
)
@click.option("--max-per-file", type=int, metavar="N", help="At most N hits of one file.")
@options.rerank_option
@click.option("--tree", is_flag=True, help="Walk down the tree of meanings (`clew tree build`).")
@click.option(
    "--scorer",
    type=click.Choice(["embedding", "cross-encoder", "llm"]),
    help="With --tree: who scores its nodes. Default: the setting tree_scorer.",
)
@click.option(
    "--no-abort", is_flag=True, help="With --tree: walk on where many records are filtered out."
)
@click.option("--agentic", is_flag=True, help="Take the query apart and search for each part.")
@click.option(
    "--no-validate", is_flag=True, help="With --agentic: keep what is far from the query."
)
@click.option("--strict", is_flag=True, help="Leave out what has little confidence (LOW).")
@options.include_personal
@click.option("--skills-only", is_flag=True, help="Only what is below .agent/skills/.")
@click.option("--no-cache", is_flag=True, help="Ask anew, and do not keep the answer.")
@options.store_folder
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Form)),
    help="As people read it, as Athena prints it, or for programs. Default: clew; with the athena "
    "profile athena.",
)
@click.option("--json", is_flag=True, help="Short for --format json.")
@click.option(
    "--explain",
    "--debug",
    is_flag=True,
    help="Show every source's rank, score and contribution, where the time went, which cache "
    "answered.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the explanation as a page for a browser.",
)
def search(store: Path | None, explain: bool, html: Path | None, **given: Any) -> None:
    """Search the index.

    \b
    Query syntax: "exact phrase", -without, tag:risk, path:projects/, type:markdown,
    collection:notes, after:2026-01-01, before:2026-07-01. Everything else is words.

    Filters alone, also as options, list what matches.

    Quotes are the shell's: write '"exact phrase"' for a phrase. After --, nothing is an option.

    Example: clew search epoxy cure time -polyester --tag workshop --explain
    """
    request = read_request(store=store, explain=explain, html=html, **given)
    if html is not None:
        from clew.cli import page

        page.check_file(html)  # before the search, not after it
    if request.form != "json":
        terminal.preload()
    with options.open_existing(store, first_query=request.first) as engine:
        data, shown, form = answer_request(engine, request, Places(engine))
        print_answer(data, shown, form=form, explain=explain)
    if html is not None:
        page.write_page(shown, html)
        print(f"clew: explained in {html}", file=sys.stderr)


class SearchCommand(NamedTuple):
    """What the arguments of `clew search` ask for."""

    words: str
    filter: Filter
    form: Form | None
    explain: bool
    options: Mapping[str, Any]
    """Of `Engine.search`."""
    tree: Mapping[str, Any] | None
    agentic: bool
    validate: bool

    @property
    def first(self) -> str | None:
        """What will be embedded, if anything is."""
        return parse(self.words).text if self.options["mode"] != "keyword" else None


def read_request(
    query: tuple[str, ...],
    source: tuple[str, ...],
    passages: bool,
    group_by: str | None,
    max_per_file: int | None,
    rerank: bool,
    tree: bool,
    scorer: str | None,
    no_abort: bool,
    agentic: bool,
    no_validate: bool,
    no_cache: bool,
    store: Path | None,
    form: Form | None,
    json: bool,
    explain: bool,
    html: Path | None,
    **chosen: Any,
) -> SearchCommand:
    """Refuse what does not go together; `store` is the caller's to open."""
    for refused, why in (
        (
            json and form not in (None, "json"),
            f"--json and --format {form} are two forms: take one",
        ),
        (no_validate and not agentic, "--no-validate goes with --agentic"),
        ((scorer or no_abort) and not tree, "--scorer and --no-abort go with --tree"),
        (
            passages and (group_by == "record" or max_per_file),
            "--passages takes any number of one file: leave the others out",
        ),
        (agentic and (passages or group_by or max_per_file), "--agentic gives one hit a record"),
        (
            chosen["mode"] != "hybrid" and (tree or source),
            "--mode says who is asked, and so does --source or --tree: leave one out",
        ),
        (tree and agentic, "--tree and --agentic are two ways to search: take one"),
        (agentic and html, "--html explains one search, not those of --agentic"),
    ):
        if refused:
            raise click.UsageError(why)
    wanted = options.take_filter(chosen)
    words = " ".join(query)
    if not words.strip() and not wanted and not chosen["skills_only"]:
        raise click.UsageError("say what to look for: words, or a filter such as --tag NAME")
    chosen |= {
        "filter": wanted,
        "sources": source or None,
        "explain": explain or html is not None,
        "rerank": rerank or None,
        "group_by": "passage" if passages else group_by,
        "max_per_file": chosen["limit"] if passages else max_per_file,
        "cache": False if no_cache else None,
    }
    return SearchCommand(
        words=words,
        filter=wanted,
        form="json" if json else form,
        explain=explain,
        options=chosen,
        tree={"scorer": scorer, "abort": not no_abort} if tree else None,
        agentic=agentic,
        validate=not no_validate,
    )


def answer_request(
    engine: Engine, asked: SearchCommand, places: Places
) -> tuple[Any, AnswerView, Form]:
    """The answer as data, as it is shown, and the form in which."""
    options = dict(asked.options)
    if asked.tree is not None:
        from clew.sources.tree import walk_of_settings

        options["tree"] = walk_of_settings(engine.config, **asked.tree)
    form = asked.form or ("athena" if engine.config.profile == "athena" else "clew")
    if asked.agentic:
        answer = agentic_search(asked.words, validate=asked.validate, engine=engine, **options)
        if not answer["results"]:
            answer["meta"]["notes"] += _add_notes(SearchResult(), asked, engine).to_dict()["notes"]
        return answer, view_agentic(answer, places, explain=asked.explain), form
    result = _add_notes(engine.search(asked.words, **options), asked, engine)
    return result.to_dict(), view.view_result(result, places), form


def _add_notes(result: SearchResult, asked: SearchCommand, engine: Engine) -> SearchResult:
    """Say which of the options' filters no record meets, where nothing was found."""
    if result or not asked.filter:
        return result
    from clew.search.advice import add_notes

    may = {name: asked.options[name] for name in ("include_personal", "skills_only")}
    return add_notes(result, asked.filter, engine.store, personal=engine.config.personal, **may)


def print_answer(data: Any, shown: AnswerView, *, form: Form, explain: bool) -> None:
    if form == "json":
        terminal.print_json(data)
    else:
        terminal.print_view(shown, form=form, explain=explain)


@guarded
def run_search(
    query: str,
    limit: int = 10,
    strict: bool = False,
    rerank: bool = False,
    debug: bool = False,
    json_output: bool = False,
    include_personal: bool = False,
    skills_only: bool = False,
) -> None:
    """Search the store at or above the current folder and print what `clew search --format athena`
    would."""
    # Nothing is embedded ahead, as the command does: where the answer was kept, this process may
    # end before a model that nobody waits for has loaded, and that aborts it.
    with open_engine(options.existing_root(None), create=False) as engine:
        found = engine.search(
            query,
            limit=limit,
            rerank=rerank or None,
            explain=debug,
            strict=strict,
            include_personal=include_personal,
            skills_only=skills_only,
        )
    form: Form = "json" if json_output else "athena"
    print_answer(found.to_dict(), view.view_result(found), form=form, explain=debug)


# ---------------------------------------------------------------------- --agentic


def view_agentic(found: Mapping[str, Any], places: Places, *, explain: bool) -> AnswerView:
    """Which sub-queries were asked, and which of them each hit answers."""
    meta, whole = found["meta"], found["sub_queries"][0]

    def name(query: str) -> str:
        return "the whole query" if query == whole else query

    before: list[Line] = []
    if found["decomposed"]:
        before = [line((f"Taken apart {DECOMPOSERS[meta['decomposer']]}:", "dim"))]
        for asked in meta["trace"]:
            ms = f", {asked['ms']:.1f} ms" if explain else ""
            of = f"({counted(asked['hits'], 'hit')}{ms})"
            before.append(line((f"{name(asked['query'])}  {of}", "dim"), indent=2))
        before.append(Line())
    hits = []
    for result in found["results"]:
        hit = view.view_hit(Hit.of(result), places)
        if found["decomposed"]:
            by = " · ".join(map(name, result["found_by"]))
            hit = hit._replace(more=(line((f"found by: {by}", "cyan"), indent=INDENT),))
        hits.append(hit)
    fallback = [f"taken apart by rules: {meta['fallback']}"] if meta["fallback"] else []
    left_out = f", {meta['dropped']} left out as too far from the query" if meta["dropped"] else ""
    of = counted(meta["total_candidates"], "candidate")
    return AnswerView(
        hits=tuple(hits),
        summary=f"{counted(meta['returned'], 'result')} of {of} in {meta['total_ms']:.0f} ms"
        + left_out,
        query=whole,
        how="Agentic",
        notes=(*(note["text"] for note in meta["notes"]), *fallback, *meta["degraded"]),
        before=tuple(before),
    )


# ---------------------------------------------------------------------- get


@click.command(cls=terminal.ReportCommand)
@click.argument("id")
@options.store_folder
def get(id: str, store: Path | None) -> terminal.CommandOutput:
    """Print one record, whole, or some of its lines.

    ID is a record's id, or a file's path in the folder; ID#L12 is its line 12, ID#L12-L15 are four.
    What search prints will do: table.csv:6 is the row at that line.
    """
    with options.open_existing(store) as engine:
        record = _find_record(engine, id)

    def draw() -> None:
        out = terminal.console()
        out.print(record.title or record.id, style="bold")
        facts = [record.id, record.type, *(f"#{tag}" for tag in record.tags)]
        out.print(" · ".join(facts), style="dim")
        # A terminal obeys what a document may hold; a pipe gets it as it is.
        safe = sys.stdout.isatty()
        print(view.clean_lines(record.content) if safe else record.content)

    return {name: getattr(record, name) for name in record.__slots__}, draw


def _find_record(engine: Engine, id: str) -> Record:
    from clew.search.citation import UnknownRecordError, find_record

    unknown: list[UnknownRecordError] = []
    for root, path in options.list_places(engine, id):
        try:
            return find_record(engine.store, f"{root}:{path}" if root else path)
        except UnknownRecordError as error:
            unknown.append(error)
    raise unknown[0]


# ---------------------------------------------------------------------- lookup


@click.command(cls=terminal.ReportWordsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", default=5, show_default=True, help="How many results.")
@click.option(
    "--folder", "-f", "folders", multiple=True, help="Look into this folder; repeat for more."
)
@click.option(
    "--repo",
    "-r",
    "repositories",
    multiple=True,
    help="Look into this git repository: files, messages, diffs.",
)
@click.option("--web", metavar="URL", help="Ask this SearXNG instance.")
@click.option(
    "--backend", "backends", multiple=True, help="Ask only this one: storage_keyword, local_git…"
)
@click.option(
    "--ranking",
    type=click.Choice(["hybrid", "bm25", "semantic", "credibility"]),
    help="By all components, or by one alone. Default: the settings', else hybrid.",
)
@click.option(
    "--adaptive-k", is_flag=True, help="Begin with few candidates, ask for more if need be."
)
@click.option("--rewrite", is_flag=True, help="Ask in other words where too little was found.")
@click.option(
    "--seconds", default=PATIENCE, show_default=True, help="How long all places have together."
)
@options.include_personal
@options.store_folder
@click.option("--explain", is_flag=True, help="Show every component, and what each place answered.")
def lookup(
    query: tuple[str, ...],
    limit: int,
    seconds: float,
    include_personal: bool,
    store: Path | None,
    explain: bool,
    **chosen: Any,
) -> terminal.CommandOutput:
    """Ask several places at once: the store, folders, repositories, the web.

    Nothing has to be indexed: folders and repositories are read when first asked about, and what is
    new in them after that. What all of them find is ranked together. Where to look beside the store
    says the table [lookup] of clew.toml, unless options do.

    Example: clew lookup --repo . --folder ~/papers why do we retry twice
    """
    from clew.lookup import ExternalLookupResult, Search  # not for `clew search`

    settings = {name: value for name, value in chosen.items() if value}
    for option, name in (("--folder", "folders"), ("--repo", "repositories")):
        for place in chosen[name]:
            if not Path(place).expanduser().exists():
                raise InputError(f"there is no {place!r} to look into: check {option}")
    with (
        Search(
            store, include_personal=include_personal, deadline=seconds, cache=False, **settings
        ) as search,
        terminal.show_waiting(f"looking, for {seconds:.0f} s at most"),
    ):
        found = search.external_lookup(" ".join(query), limit, return_handles=True)
        assert isinstance(found, ExternalLookupResult)
        shown = view_lookup(found, Places(found.storage), explain=explain)
    nobody_could = not found and len(found.degraded) >= len(found.by_backend)
    return found.to_dict(), lambda: terminal.print_view(shown, explain=explain), nobody_could


def view_lookup(found: ExternalLookupResult, places: Places, *, explain: bool) -> AnswerView:
    of = counted(len(found.by_backend), "place")
    by = f"by {found.trace['ranking']['by']} in {found.trace['total_ms']:.0f} ms"
    after = []
    for name, told in found.trace["backends"].items():
        notes = "; ".join([*filter(None, [told["problem"]]), *told["notes"]])
        said = f"{name:<16} {counted(told['count'], 'hit')} in {told['ms']:.0f} ms"
        after.append(f"{said}{f': {notes}' if notes else ''}")
    for step in found.trace["steps"]:
        after.append(", ".join(f"{key} {value}" for key, value in step.items()))
    if why := found.trace["ranking"].get("semantic"):
        after.append(f"meaning took no part: {why}")
    return AnswerView(
        hits=tuple(_view_lookup_hit(hit, places, explain=explain) for hit in found),
        summary=f"{counted(len(found), 'result')} from {of} {by}",
        notes=tuple(found.degraded),
        after=tuple(line((text, "dim")) for text in after),
    )


def _view_lookup_hit(hit: Hit, places: Places, *, explain: bool) -> HitView:
    commit = str(hit.metadata.get("commit", ""))[:10]
    backends = ", ".join(map(str, hit.metadata["backends"]))
    # at its passage's first line, where its path is one of this machine
    at = {"snippet_line": hit.lines[0]} if hit.lines else {}
    bare = replace(hit, metadata={**hit.metadata, **at}, signals={})
    shown = view.view_hit(bare, places, facts=f"  ({backends}{f', {commit}' if commit else ''})")
    if not explain:
        return shown
    said = [f"score {hit.score:.4f}, from 0 to 1 in this answer"]
    for name, signal in hit.signals.items():
        if "normalised" in signal:
            sum_ = f"{signal['normalised']:.4f} × {signal['weight']:.2f} = {signal['contrib']:.4f}"
            said.append(f"{name:<12} {signal['score']:>9.4f} → {sum_}")
    return shown._replace(more=tuple(line((text, "dim"), indent=INDENT) for text in said))
