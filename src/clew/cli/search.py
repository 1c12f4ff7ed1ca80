"""clew search, get, lookup: records come back. `run_search` is the same for scripts and agents."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from clew.cli import options, terminal, view
from clew.cli.terminal import Form
from clew.cli.view import INDENT, AnswerView, HitView, Line, Places, line
from clew.engine import Engine, agentic_search, open_engine
from clew.errors import InputError, counted
from clew.filter import EVERYTHING, Filter, visible
from clew.text.parse import parse
from clew.types import Candidate, Hit, Mode, Record
from clew.validate import guarded

if TYPE_CHECKING:
    from clew.lookup import ExternalLookupResult

DECOMPOSERS = {"rules": "by rules", "llm": "by the chat model"}
ROWS_PAGE = 1_000
"""Rows of a table that are looked through at a time."""
MOST_PATHS = 20_000
"""Paths among which the nearest is looked for."""
_CITED = re.compile(r"(.+)#L(\d+)(?:-L?(\d+))?", re.DOTALL)
_PLACE = re.compile(r"(.+):(\d+)", re.DOTALL)
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
@click.option("--tag", "tags", multiple=True, help="Has this tag; repeat for any of.")
@click.option("--path", multiple=True, help="Below this path, or matching this glob.")
@click.option("--type", multiple=True, help="Of this type: markdown, code, html, table…")
@click.option("--collection", multiple=True, help="In this collection.")
@click.option("--after", metavar="DATE", help="Changed at or after this date.")
@click.option("--before", metavar="DATE", help="Changed before this date.")
@options.pairs_option("--meta", "metadata", "Metadata, as status=open.")
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
def search(
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
) -> None:
    """Search the index.

    \b
    Query syntax: "exact phrase", -without, tag:risk, path:projects/, type:markdown,
    collection:notes, after:2026-01-01, before:2026-07-01. Everything else is words.

    Filters alone, also as options, list what matches.

    Quotes are the shell's: write '"exact phrase"' for a phrase. After --, nothing is an option.

    Example: clew search epoxy cure time -polyester --tag workshop --explain
    """
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
        (tree and agentic, "--tree and --agentic are two ways to search: take one"),
        (agentic and html, "--html explains one search, not those of --agentic"),
    ):
        if refused:
            raise click.UsageError(why)
    fields = ("tags", "path", "type", "collection", "after", "before", "metadata")
    given = {name: value for name in fields if (value := chosen.pop(name))}
    wanted = Filter(**given)
    words = " ".join(query)
    if not words.strip() and not wanted and not chosen["skills_only"]:
        raise click.UsageError("say what to look for: words, or a filter such as --tag NAME")
    if html is not None:
        from clew.cli import page

        page.check_file(html)  # before the search, not after it
    form = "json" if json else form
    if form != "json":
        terminal.preload()
    first = parse(words).text if chosen["mode"] != "keyword" else None
    with options.open_existing(store, first_query=first) as engine:
        chosen |= {
            "filter": wanted,
            "sources": source or None,
            "explain": explain or html is not None,
            "rerank": rerank or None,
            "group_by": "passage" if passages else group_by,
            "max_per_file": chosen["limit"] if passages else max_per_file,
            "cache": False if no_cache else None,
        }
        if tree:
            from clew.sources.tree import walk_of_settings

            chosen["tree"] = walk_of_settings(engine.config, scorer=scorer, abort=not no_abort)
        form = form or ("athena" if engine.config.profile == "athena" else "clew")
        if agentic:
            answer = agentic_search(words, validate=not no_validate, engine=engine, **chosen)
            data, shown = answer, view_agentic(answer, Places(engine), explain=explain)
        else:
            result = engine.search(words, **chosen)
            if not result and wanted:  # which of the filters no record meets
                from clew.search.advice import unmet

                scope = visible(
                    Filter(domain=wanted.domain),
                    include_personal=chosen["include_personal"],
                    skills_only=chosen["skills_only"],
                    personal=engine.config.personal,
                )
                said = unmet(wanted, scope.without("domain"), engine.store, typed=False)
                result = replace(result, notes=(*result.notes, *said))
            data, shown = result.to_dict(), view.view_result(result, Places(engine))
        print_answer(data, shown, form=form, explain=explain)
    if html is not None:
        page.write_page(shown, html)
        print(f"clew: explained in {html}", file=sys.stderr)


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
        # a hit again, as it was before it became plain data
        fields = {name: of for name, of in result.items() if name in Hit.__dataclass_fields__}
        fields["lines"] = tuple(result["lines"]) if result["lines"] else None
        fields["highlights"] = tuple((start, end) for start, end in result["highlights"])
        hit = view.view_hit(Hit(**fields), places)
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
        record = find_record(engine, id)

    def draw() -> None:
        out = terminal.console()
        out.print(record.title or record.id, style="bold")
        facts = [record.id, record.type, *(f"#{tag}" for tag in record.tags)]
        out.print(" · ".join(facts), style="dim")
        # A terminal obeys what a document may hold; a pipe gets it as it is.
        safe = sys.stdout.isatty()
        print(view.clean_lines(record.content) if safe else record.content)

    return {name: getattr(record, name) for name in record.__slots__}, draw


def find_record(engine: Engine, id: str) -> Record:
    """The record of this id or path, or the lines of it that are cited, or a table's row there."""
    if (record := _record(engine, id)) is not None:
        return record
    if (cited := _CITED.fullmatch(id)) and (record := _record(engine, cited[1])):
        first, last = int(cited[2]), int(cited[3] or cited[2])
        lines = record.content.splitlines()[max(0, first - 1) : last]
        if not lines:
            raise InputError(f"{cited[1]!r} has no line {first}")
        return replace(record, content="\n".join(lines))
    if (place := _PLACE.fullmatch(id)) and (record := _record(engine, place[1])):
        from clew.memory.record import read_pages  # takes a while

        number = int(place[2])
        for page in read_pages(engine.store, Filter(path=record.path or ""), ROWS_PAGE):
            rows = [each.id for each in page if each.id.startswith(f"{record.id}#")]
            for found in engine.store.passages([Candidate(row, 1.0) for row in rows]):
                if found is not None and found.lines[0] <= number <= found.lines[1]:
                    return found.record
        if not 1 <= number <= len(record.content.splitlines()):
            raise InputError(f"{place[1]!r} has no line {number}")
        return record
    near = _nearest_path(engine, (cited or place or [id, id])[1])
    advice = f"did you mean {near!r}?" if near else "`clew search` shows ids with --json"
    raise InputError(f"there is no record {id!r}: {advice}")


def _record(engine: Engine, id: str) -> Record | None:
    """By its id, with the name of its root or without, or by its path."""
    roots = engine.store.files.roots()
    if found := engine.store.get([id, *(f"{root}:{id}" for root in roots)]):
        return found[0]
    paths = [r for r in engine.store.select(Filter(path=id), limit=2) if r.path == id]
    return paths[0] if paths else None


def _nearest_path(engine: Engine, given: str) -> str:
    """The path that is most like this one; "" where none is."""
    from difflib import get_close_matches  # for the unlucky only

    paths = list(engine.store.counts("path", EVERYTHING))[:MOST_PATHS]
    folded = {path.casefold(): path for path in reversed(paths)}
    near = get_close_matches(given.casefold(), folded, n=1, cutoff=0.75)
    return folded[near[0]] if near else ""


# ---------------------------------------------------------------------- lookup


@click.command(cls=terminal.ReportWordsCommand)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", "-n", default=5, show_default=True, help="How many results.")
@click.option(
    "--folder", "-f", "folders", multiple=True, help="Also look into this folder; repeat for more."
)
@click.option(
    "--repo",
    "-r",
    "repositories",
    multiple=True,
    help="Also into this git repository: files, messages, diffs.",
)
@click.option("--web", metavar="URL", help="Also ask this SearXNG instance.")
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

    Nothing has to be indexed: folders and repositories are read for this one question. What all of
    them find is ranked together. The table [lookup] of clew.toml says where to look by default.

    Example: clew lookup --repo . --folder ~/papers why do we retry twice
    """
    from clew.lookup import ExternalLookupResult, Search  # not for `clew search`

    settings = {name: value for name, value in chosen.items() if value}
    with Search(
        store, include_personal=include_personal, deadline=seconds, cache=False, **settings
    ) as search:
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
