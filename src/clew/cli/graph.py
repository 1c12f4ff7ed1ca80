"""clew graph: entities and themes of the records, built, looked at, asked and dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from clew.cli.options import open_existing, resumable, store_folder
from clew.cli.terminal import CommandOutput, ReportCommand, ReportWordsCommand, show_progress
from clew.cli.view import one_line
from clew.errors import counted

MOST_CENTRAL = 40
"""Records of a theme that are known by name: see graph/communities.py."""

personal = click.option(
    "--include-personal", is_flag=True, help="Also what is of the personal domain."
)


@click.group()
def graph() -> None:
    """Entities, their relations and themes: what the records have to do with each other."""


@graph.command(cls=ReportCommand)
@click.option("--force", is_flag=True, help="Read every record again, not only what changed.")
@click.option(
    "--llm/--no-llm",
    default=True,
    help="Let the chat model of the settings read the passages, if there is one.",
)
@store_folder
def build(force: bool, llm: bool, store: Path | None) -> CommandOutput:
    """Make the graph, or bring it up to date.

    Entities come from links, front matter, headings, code and the names in running text; a chat
    model (`clew config llm`) reads the passages instead, where there is one, and is asked about
    each passage once. Only records that changed are read again. From then on every search asks the
    graph as well. `clew graph drop` undoes it.

    Example: clew graph build && clew graph query "who looks after the crane"
    """
    with (
        open_existing(store) as engine,
        resumable("clew graph build"),
        show_progress() as progress,
    ):
        report = engine.graph.build(force=force, llm=llm, progress=progress)
    said = [
        f"{counted(report.records, 'record')}: {report.read:,} read, {report.removed:,} gone. "
        f"{counted(report.entities, 'entity', 'entities')}, {counted(report.links, 'link')}, "
        f"{counted(report.relations, 'relation')}, {_describe_levels(report.communities)}."
    ]
    if report.asked or report.kept:
        answers = counted(report.kept, "answer")
        said.append(f"{report.model} was asked {report.asked:,} times; {answers} had been kept.")
    said += [f"! {note}" for note in report.notes]
    total = sum(report.seconds.values())
    said.append(f"{total:.1f} s · ask it with: clew graph query WORDS")
    return report.to_dict(), said


def _describe_levels(counts: list[int]) -> str:
    if not counts:
        return "no themes"
    return f"themes on {counted(len(counts), 'level')} ({', '.join(f'{n:,}' for n in counts)})"


@graph.command(cls=ReportCommand)
@click.argument("entity", nargs=-1)
@click.option("--limit", "-n", default=15, type=click.IntRange(1, 2000), help="How many of each.")
@click.option("--level", type=int, help="Of the themes: 0 is the finest.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an interactive picture to this file instead.",
)
@click.option("--nodes", default=300, type=click.IntRange(1, 2000), help="Nodes of the picture.")
@personal
@store_folder
def show(
    entity: tuple[str, ...],
    html: Path | None,
    nodes: int,
    include_personal: bool,
    store: Path | None,
    **options: Any,
) -> CommandOutput:
    """The foremost entities and the themes; or all about one ENTITY.

    With --html FILE an interactive picture: one file that works offline in any browser.

    Example: clew graph show Greta
    """
    with open_existing(store) as engine:
        if html is not None:
            drawn = engine.graph.picture(html, limit=nodes, include_personal=include_personal)
            sizes = f"{counted(drawn['nodes'], 'node')}, {counted(drawn['edges'], 'edge')}"
            said = f"{sizes}: open {html} in a browser."
            return {"file": str(html), **drawn}, [said]
        name = " ".join(entity) or None
        found = engine.graph.show(name, include_personal=include_personal, **options)
    return found, _clean_lines(_describe_entity(found) if entity else _describe_graph(found))


@graph.command(cls=ReportWordsCommand)
@click.argument("question", nargs=-1, required=True)
@click.option(
    "--mode",
    type=click.Choice(["local", "global"]),
    default="local",
    help="local: records near what the question names; global: themes that fit it.",
)
@click.option("--limit", "-n", default=10, type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--level", type=int, help="Of the themes: 0 is the finest.")
@personal
@store_folder
def query(
    question: tuple[str, ...], mode: str, store: Path | None, **options: Any
) -> CommandOutput:
    """Ask the graph alone: what lies near the entities of QUESTION, or which themes fit it.

    Example: clew graph query --mode global "what goes wrong with batteries"
    """
    with open_existing(store) as engine:
        found = engine.graph.query(" ".join(question), mode=mode, **options).to_dict()
    said = _describe_themes(found["themes"]) if mode == "global" else _describe_nearby(found)
    return found, _clean_lines(said)


@graph.command(cls=ReportCommand)
@click.option("--answers", is_flag=True, help="Also what a chat model said, which costs anew.")
@store_folder
def drop(answers: bool, store: Path | None) -> CommandOutput:
    """Delete the graph. Records are never touched; `clew graph build` makes it again."""
    with open_existing(store) as engine:
        there = engine.graph.drop(answers=answers)
    return {"dropped": there}, ["The graph is gone." if there else "There was no graph."]


# ---------------------------------------------------------------------- lines


def _clean_lines(lines: Iterator[str]) -> Iterator[str]:
    """Words of documents stand in these lines, after their indent."""
    return (" " * (len(line) - len(line.lstrip(" "))) + one_line(line) for line in lines)


def _describe_graph(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{counted(found['records'], 'record')}, "
        f"{counted(found['entities'], 'entity', 'entities')}, {counted(found['links'], 'link')}, "
        f"{_describe_levels(found['levels'])}"
    )
    for entity in found["foremost"]:
        many = f"{'more than ' if entity['more'] else ''}{counted(entity['records'], 'record')}"
        yield f"  {entity['name']} ({entity['kind']}, {many})"
    if found["themes"]:
        yield "Themes"
    yield from _describe_themes(found["themes"])


def _describe_entity(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['name']} ({found['kind']}, {counted(found['mentions'], 'mention')})"
    if len(found["spellings"]) > 1:
        yield f"  also: {', '.join(found['spellings'][1:])}"
    for record in found["records"]:
        yield f"  in {record}"
    for other in found["related"]:
        arrow = "→" if other["direction"] == "to" else "←"
        yield f"  {arrow} {other['relation']}: {other['name']}"


def _describe_nearby(found: Mapping[str, Any]) -> Iterator[str]:
    if found["named"]:
        yield f"Named: {', '.join(found['named'])}"
    if found["entities"]:
        yield f"Near: {', '.join(one['name'] for one in found['entities'])}"
    if not found["records"]:
        yield "Nothing lies near what the question names."
    for rank, record in enumerate(found["records"], 1):
        yield f"{rank:>2}. {record['title'] or record['id']}  [{record['score']:.3f}]"
        yield f"    {record['path'] or record['id']}:{record['lines'][0]}"


def _describe_themes(themes: list[Mapping[str, Any]]) -> Iterator[str]:
    for theme in themes:
        more = " or more" if theme["size"] >= MOST_CENTRAL else ""
        yield f"  {theme['title']} ({counted(theme['size'], 'record')}{more})"
        if theme["summary"]:
            yield f"    {theme['summary']}"
        for record in theme["records"][:3]:
            yield f"    · {record}"
