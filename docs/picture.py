"""Draw the picture of the README: a real search on the sample folder, as Rich prints it."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from shutil import copytree, ignore_patterns

from rich.console import Console
from rich.text import Text

import clew
from clew.cli import terminal
from clew.cli.view import view_result

SAMPLE = Path(__file__).parent.parent / "sample"
QUERY = "electric fuse keeps blowing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the SVG file to write")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(copytree(SAMPLE, Path(folder) / "sample", ignore=ignore_patterns(".clew")))
        with clew.open(notes) as engine:
            engine.index()
            found = engine.search(QUERY, limit=3, explain=True)
    screen = Console(record=True, width=96, highlight=False, file=None, quiet=False)
    screen.print(Text(f'$ clew search --explain --limit 3 "{QUERY}"', style="bold green"))
    terminal.draw(terminal.answer_lines(view_result(found), explain=True), out=screen)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_offline(screen.export_svg(title="clew search")), "utf-8")


def _offline(svg: str) -> str:
    """Without the fonts that Rich's drawing fetches from the network: any monospace font will do,
    since every piece of text has its place and length."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
