"""clew tree: a hierarchy of meanings over the records, to look at and to search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clew.cli import render
from clew.cli.options import as_json, open_existing, store_folder
from clew.cli.plain import one_line
from clew.errors import InputError, counted

__all__ = ["tree"]


@click.group()
def tree() -> None:
    """A tree of what the records are about: build it, look at it, search it with --tree."""


@tree.command()
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
@as_json
def build(mode: str, branching: int | None, no_llm: bool, store: Path | None, json: bool) -> None:
    """Build the tree, in the place of one that is there.

    It is made of the records' vectors: run clew index first. Where a chat model is configured
    (setting llm), it names the groups, and in top-down mode makes them; what it wrote is kept, so
    that building again asks only about what has changed. Later edits find their place in the tree
    by themselves.

    Example: clew tree build --mode top-down
    """
    with open_existing(store) as engine, render.progress(shown=not json) as progress:
        report = engine.tree.build(
            mode=mode, branching=branching, llm=not no_llm, progress=progress
        )
    if json:
        render.print_json(report)
        return
    render.say(
        f"{counted(report['leaves'], 'record')} below {counted(report['nodes'], 'node')}, "
        f"{counted(report['depth'], 'level')} deep, {report['mode']}."
    )
    if report["unplaced"]:
        without = counted(report["unplaced"], "record")
        render.say(f"{without} without a vector not in it: run clew index, it follows.")
    if asked := report["llm"]:
        render.say(f"{asked['model']} was asked {counted(asked['calls'], 'time')}.")
        if asked["failures"]:
            render.say(f"{asked['failures']:,} without an answer: {one_line(asked['problem'])}")


@tree.command()
@click.argument("node", type=int, default=0)
@click.option("--depth", default=2, show_default=True, help="Levels to show.")
@click.option("--include-personal", is_flag=True, help="Also what is marked as personal.")
@store_folder
@as_json
def show(node: int, depth: int, include_personal: bool, store: Path | None, json: bool) -> None:
    """Show the tree from NODE down (the root is 0): labels, and records at its ends.

    Example: clew tree show 3 --depth 1
    """
    if depth < 0:
        raise InputError("--depth is a number of levels: 0 shows the node alone")
    with open_existing(store) as engine:
        shown = engine.tree.show(node, depth=depth, include_personal=include_personal)
    if json:
        render.print_json(shown)
    else:
        for line in _lines(shown, 0):
            render.say(line)


def _lines(shown: dict[str, Any], level: int) -> list[str]:
    inset = "  " * level
    if "node" not in shown:
        return [f"{inset}· {one_line(shown['title']) or one_line(shown['id'])}"]
    stale = ", stale" if shown["stale"] else ""
    lines = [
        f"{inset}{shown['node']} {one_line(shown['label'])} "
        f"({counted(shown['leaves'], 'record')}{stale})"
    ]
    for child in shown.get("children", ()):
        lines += _lines(child, level + 1)
    return lines


@tree.command()
@store_folder
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@as_json
def drop(store: Path | None, yes: bool, json: bool) -> None:
    """Remove the tree, and what a chat model wrote for it. No record is touched.

    clew tree build makes it anew.
    """
    if not (yes or json or click.confirm("Remove the tree?")):
        raise InputError("nothing was removed")
    with open_existing(store) as engine:
        dropped = engine.tree.drop()
    if json:
        render.print_json({"dropped": dropped})
    else:
        render.say("The tree is removed." if dropped else "There was no tree.")
