"""clew search, get: records come back."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from clew.cli import agentic as parts
from clew.cli import answer, render
from clew.cli.options import WordsCommand, as_json, open_existing, pairs, store_folder
from clew.filter import Filter
from clew.text.parse import parse
from clew.types import GroupBy, Mode
from clew.visibility import visible

if TYPE_CHECKING:
    pass

__all__ = ["get", "search"]


@click.command(cls=WordsCommand)
@click.argument("query", nargs=-1)
@click.option("--limit", "-n", default=10, show_default=True, help="How many results.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "vector"]),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or both.",
)
@click.option("--tag", multiple=True, help="Has this tag; repeat for any of.")
@click.option("--path", multiple=True, help="Below this path, or matching this glob.")
@click.option("--type", multiple=True, help="Of this type: markdown, code, html, table…")
@click.option("--collection", multiple=True, help="In this collection.")
@click.option("--after", metavar="DATE", help="Changed at or after this date.")
@click.option("--before", metavar="DATE", help="Changed before this date.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata, as status=open.")
@click.option("--source", multiple=True, help="Ask only this source: keyword, vectors.")
@click.option("--passages", is_flag=True, help="Each passage for itself: many of one long file.")
@click.option(
    "--group-by",
    type=click.Choice(["passage", "record"]),
    help="One hit a record, or also its further passages that win on their own (the default).",
)
@click.option("--max-per-file", type=int, metavar="N", help="At most N hits of one file.")
@click.option("--rerank", is_flag=True, help="Read the head again with a cross-encoder (slower).")
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
@click.option("--include-personal", is_flag=True, help="Also what is marked as personal.")
@click.option("--skills-only", is_flag=True, help="Only what is below .agent/skills/.")
@click.option("--no-cache", is_flag=True, help="Ask anew, and do not keep the answer.")
@store_folder
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(answer.Form)),
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
    limit: int,
    mode: Mode,
    meta: tuple[str, ...],
    source: tuple[str, ...],
    passages: bool,
    group_by: GroupBy | None,
    max_per_file: int | None,
    rerank: bool,
    tree: bool,
    scorer: str | None,
    no_abort: bool,
    agentic: bool,
    no_validate: bool,
    strict: bool,
    include_personal: bool,
    skills_only: bool,
    no_cache: bool,
    store: Path | None,
    form: answer.Form | None,
    json: bool,
    explain: bool,
    html: Path | None,
    **filters: Any,
) -> None:
    """Search the index.

    \b
    Query syntax: "exact phrase", -without, tag:risk, path:projects/, type:markdown,
    collection:notes, after:2026-01-01, before:2026-07-01. Everything else is words.

    Filters alone, also as options, list what matches.

    Quotes are the shell's: write '"exact phrase"' for a phrase. After --, nothing is an option.

    Example: clew search epoxy cure time -polyester --tag workshop --explain
    """
    if json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} are two forms: take one")
    if no_validate and not agentic:
        raise click.UsageError("--no-validate goes with --agentic")
    if (scorer or no_abort) and not tree:
        raise click.UsageError("--scorer and --no-abort go with --tree")
    if passages and (group_by == "record" or max_per_file):
        raise click.UsageError("--passages takes any number of one file: leave the others out")
    if agentic and (passages or group_by or max_per_file):
        raise click.UsageError("--agentic gives one hit a record")
    if tree and agentic:
        raise click.UsageError("--tree and --agentic are two ways to search: take one")
    given = {_FIELDS.get(name, name): value for name, value in filters.items() if value}
    wanted = Filter(metadata=pairs(meta, "--meta"), **given)
    words = " ".join(query)
    if not words.strip() and not wanted and not skills_only:
        raise click.UsageError("say what to look for: words, or a filter such as --tag NAME")
    if agentic and html is not None:
        raise click.UsageError("--html explains one search, not those of --agentic")
    if html is not None:
        from clew.cli import page

        page.check(html)  # before the search, not after it
    form = "json" if json else form
    if form != "json" and sys.stdout.isatty():
        threading.Thread(target=render.prepare, daemon=True).start()
    first = parse(words).text if mode != "keyword" else None
    with open_existing(store, first_query=first) as engine:
        options: dict[str, Any] = {
            "limit": limit,
            "mode": mode,
            "filter": wanted,
            "sources": source or None,
            "explain": explain or html is not None,
            "rerank": rerank or None,
            "group_by": "passage" if passages else group_by,
            "max_per_file": limit if passages else max_per_file,
            "strict": strict,
            "include_personal": include_personal,
            "skills_only": skills_only,
            "cache": False if no_cache else None,
        }
        if tree:
            from clew.sources.tree_search import settings_walk

            options["tree"] = settings_walk(engine.config, scorer=scorer, abort=not no_abort)
        shown = form or ("athena" if engine.config.profile == "athena" else "clew")
        where = answer.Places(engine)
        if agentic:
            valid = not no_validate
            parts.search(engine, words, validate=valid, form=shown, where=where, **options)
            return
        result = engine.search(words, **options)
        if not result and wanted:
            from clew.search.advice import unmet

            scope = visible(
                Filter(domain=wanted.domain),
                include_personal=include_personal,
                skills_only=skills_only,
                personal=engine.config.personal,
            )
            said = unmet(wanted, scope.without("domain"), engine.store, typed=False)
            result = replace(result, notes=(*result.notes, *said))
        answer.show(result, form=shown, explain=explain, where=where)
    if html is not None:
        page.write(result, html)
        print(f"clew: explained in {html}", file=sys.stderr)


_FIELDS = {"tag": "tags"}


@click.command()
@click.argument("id")
@store_folder
@as_json
def get(id: str, store: Path | None, json: bool) -> None:
    """Print one record, whole, or some of its lines.

    ID is a record's id, or a file's path in the folder; ID#L12 is its line 12, ID#L12-L15 are four.
    What search prints will do: table.csv:6 is the row at that line.
    """
    from clew.cli.named import named

    with open_existing(store) as engine:
        render.record(named(engine, id), as_json=json)
