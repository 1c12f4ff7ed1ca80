"""clew graph, tree: what the records have to do with each other, built, looked at and dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from clew.cli import terminal
from clew.cli.options import include_personal, open_existing, resumable, store_folder, yes_option
from clew.cli.terminal import CommandOutput, ReportCommand, ReportWordsCommand, show_progress
from clew.cli.view import one_line
from clew.errors import InputError, counted

MOST_CENTRAL = 40
"""Records of a theme that are known by name: see graph/communities.py."""


@click.group()
def graph() -> None:
    """Entities, their relations and themes: what the records have to do with each other."""


@graph.command("build", cls=ReportCommand)
@click.option("--force", is_flag=True, help="Read every record again, not only what changed.")
@click.option(
    "--llm/--no-llm",
    default=True,
    help="Let the chat model of the settings read the passages, if there is one.",
)
@store_folder
def build_graph(force: bool, llm: bool, store: Path | None) -> CommandOutput:
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


@graph.command("show", cls=ReportCommand)
@click.argument("entity", nargs=-1)
@click.option("--limit", "-n", default=15, type=click.IntRange(1, 2000), help="How many of each.")
@click.option("--level", type=int, help="Of the themes: 0 is the finest.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an interactive picture to this file instead.",
)
@click.option("--nodes", default=160, type=click.IntRange(1, 2000), help="Nodes of the picture.")
@include_personal
@store_folder
def show_graph(
    entity: tuple[str, ...],
    html: Path | None,
    nodes: int,
    include_personal: bool,
    store: Path | None,
    **options: Any,
) -> CommandOutput:
    """The foremost entities and the themes; or all about one ENTITY.

    With --html FILE an interactive picture, around ENTITY if there is one: one file that works
    offline in any browser.

    Example: clew graph show Greta
    """
    name = " ".join(entity) or None
    if html is not None:
        from clew.cli.page import check_file

        check_file(html)
    with open_existing(store) as engine:
        if html is not None:
            drawn = engine.graph.picture(
                html, entity=name, limit=nodes, include_personal=include_personal
            )
            sizes = f"{counted(drawn['nodes'], 'node')}, {counted(drawn['edges'], 'edge')}"
            said = f"{sizes}: open {html} in a browser."
            return {"file": str(html), **drawn}, [said]
        found = engine.graph.show(name, include_personal=include_personal, **options)
    return found, _clean_lines(_describe_entity(found) if entity else _describe_graph(found))


@graph.command("query", cls=ReportWordsCommand)
@click.argument("question", nargs=-1, required=True)
@click.option(
    "--mode",
    type=click.Choice(["local", "global"]),
    default="local",
    help="local: records near what the question names; global: themes that fit it.",
)
@click.option("--limit", "-n", default=10, type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--level", type=int, help="Of the themes: 0 is the finest.")
@include_personal
@store_folder
def query_graph(
    question: tuple[str, ...], mode: str, store: Path | None, **options: Any
) -> CommandOutput:
    """Ask the graph alone: what lies near the entities of QUESTION, or which themes fit it.

    Example: clew graph query --mode global "what goes wrong with batteries"
    """
    with open_existing(store) as engine:
        found = engine.graph.query(" ".join(question), mode=mode, **options).to_dict()
    said = _describe_themes(found["themes"]) if mode == "global" else _describe_nearby(found)
    return found, _clean_lines(said)


@graph.command("drop", cls=ReportCommand)
@click.option("--answers", is_flag=True, help="Also what a chat model said, which costs anew.")
@store_folder
def drop_graph(answers: bool, store: Path | None) -> CommandOutput:
    """Delete the graph. Records are never touched; `clew graph build` makes it again."""
    with open_existing(store) as engine:
        there = engine.graph.drop(answers=answers)
    return {"dropped": there}, ["The graph is gone." if there else "There was no graph."]


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


# ---------------------------------------------------------------------- tree


@click.group()
def tree() -> None:
    """A tree of what the records are about: build it, look at it, search it with --tree."""


@tree.command("build", cls=ReportCommand)
@click.option(
    "--mode",
    type=click.Choice(["bottom-up", "top-down"]),
    default="bottom-up",
    show_default=True,
    help="Group alike records, and the groups again; or divide all of them again and again.",
)
@click.option(
    "--branching",
    type=click.IntRange(2, 20),
    help="Children a node has at most. Default: the setting tree_branching.",
)
@click.option("--no-llm", is_flag=True, help="Do without the configured chat model.")
@store_folder
def build_tree(mode: str, branching: int | None, no_llm: bool, store: Path | None) -> CommandOutput:
    """Build the tree, in the place of one that is there.

    It is made of the records' vectors: run clew index first. Where a chat model is configured
    (setting llm), it names the groups, and in top-down mode makes them; what it wrote is kept, so
    that building again asks only about what has changed. Later edits find their place in the tree
    by themselves.

    Example: clew tree build --mode top-down
    """
    with open_existing(store) as engine, show_progress() as progress:
        report = engine.tree.build(
            mode=mode, branching=branching, llm=not no_llm, progress=progress
        )
    said = [
        f"{counted(report['leaves'], 'record')} below {counted(report['nodes'], 'node')}, "
        f"{counted(report['depth'], 'level')} deep, {report['mode']}."
    ]
    if report["unplaced"]:
        without = counted(report["unplaced"], "record")
        said.append(f"{without} without a vector not in it: run clew index, it follows.")
    if asked := report["llm"]:
        said.append(f"{asked['model']} was asked {counted(asked['calls'], 'time')}.")
        if asked["failures"]:
            said.append(f"{asked['failures']:,} without an answer: {one_line(asked['problem'])}")
    return report, said


@tree.command("show", cls=ReportCommand)
@click.argument("node", type=int, default=0)
@click.option("--depth", default=2, show_default=True, help="Levels to show.")
@include_personal
@store_folder
def show_tree(node: int, depth: int, include_personal: bool, store: Path | None) -> CommandOutput:
    """Show the tree from NODE down (the root is 0): labels, and records at its ends.

    Example: clew tree show 3 --depth 1
    """
    if depth < 0:
        raise InputError("--depth is a number of levels: 0 shows the node alone")
    with open_existing(store) as engine:
        shown = engine.tree.show(node, depth=depth, include_personal=include_personal)
    return shown, _describe_node(shown)


def _describe_node(shown: dict[str, Any], inset: str = "") -> Iterator[str]:
    if "node" not in shown:
        yield f"{inset}· {one_line(shown['title']) or one_line(shown['id'])}"
        return
    size = f"({counted(shown['leaves'], 'record')}{', stale' if shown['stale'] else ''})"
    yield f"{inset}{shown['node']} {one_line(shown['label'])} {size}"
    for child in shown.get("children", ()):
        yield from _describe_node(child, f"{inset}  ")


@tree.command("drop", cls=ReportCommand)
@store_folder
@yes_option
def drop_tree(store: Path | None, yes: bool) -> CommandOutput:
    """Remove the tree, and what a chat model wrote for it. No record is touched.

    clew tree build makes it anew.
    """
    if not terminal.confirm("Remove the tree?", yes=yes):
        raise InputError("nothing was removed")
    with open_existing(store) as engine:
        dropped = engine.tree.drop()
    said = "The tree is removed." if dropped else "There was no tree."
    return {"dropped": dropped}, [said]
