"""clew tree: a hierarchy of meanings over the records, to look at and to search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from clew.cli.options import include_personal, open_existing, store_folder, yes_option
from clew.cli.terminal import CommandOutput, ReportCommand, confirm, show_progress
from clew.cli.view import one_line
from clew.errors import InputError, counted


@click.group()
def tree() -> None:
    """A tree of what the records are about: build it, look at it, search it with --tree."""


@tree.command(cls=ReportCommand)
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
def build(mode: str, branching: int | None, no_llm: bool, store: Path | None) -> CommandOutput:
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


@tree.command(cls=ReportCommand)
@click.argument("node", type=int, default=0)
@click.option("--depth", default=2, show_default=True, help="Levels to show.")
@include_personal
@store_folder
def show(node: int, depth: int, include_personal: bool, store: Path | None) -> CommandOutput:
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


@tree.command(cls=ReportCommand)
@store_folder
@yes_option
def drop(store: Path | None, yes: bool) -> CommandOutput:
    """Remove the tree, and what a chat model wrote for it. No record is touched.

    clew tree build makes it anew.
    """
    if not confirm("Remove the tree?", yes=yes):
        raise InputError("nothing was removed")
    with open_existing(store) as engine:
        dropped = engine.tree.drop()
    said = "The tree is removed." if dropped else "There was no tree."
    return {"dropped": dropped}, [said]
