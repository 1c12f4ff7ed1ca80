"""What every benchmark shares: its options, its tables, and a line about the machine.

`python benchmarks/report.py` prints that line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; `note` says how they came about."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""

    def markdown(self) -> str:
        head = f"| {' | '.join(self.columns)} |\n|{'---|' * len(self.columns)}\n"
        body = "".join(f"| {' | '.join(_text(cell) for cell in row)} |\n" for row in self.rows)
        note = f"\n{self.note}\n" if self.note else ""
        return f"## {self.title}\n\n{head}{body}{note}"

    def plain(self) -> str:
        rows = [self.columns, *(tuple(_text(cell) for cell in row) for row in self.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
        lines.insert(1, "  ".join("─" * width for width in widths))
        note = f"{self.note}\n" if self.note else ""
        return f"{self.title}\n" + "\n".join(line.rstrip() for line in lines) + f"\n{note}"


def figure(what: str, measured: str, wanted: str, holds: bool) -> tuple[str, str, str, str]:
    """A row of the table that says which promises hold."""
    return what, measured, wanted, "yes" if holds else "NO"


def options(about: str, *, data: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON instead")
    parser.add_argument("--out", type=Path, help="also write the tables to this Markdown file")
    parser.add_argument(
        "--work", type=Path, help="folder for temporary stores (default: the system's)"
    )
    if data:
        parser.add_argument(
            "--data",
            type=Path,
            default=data_folder(),
            help="folder of the public test collections (default: $CLEW_DATA or ../shared/data)",
        )
    return parser


def data_folder() -> Path:
    given = os.environ.get("CLEW_DATA")
    return Path(given) if given else REPOSITORY.parent / "shared" / "data"


def publish(
    heading: str, about: str, tables: Sequence[Table], numbers: Any, arguments: argparse.Namespace
) -> None:
    """Print the tables (or the numbers as JSON) and write the Markdown where it was asked for."""
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        parts = [f"# {heading}\n\n{about.strip()}\n\nMachine: {machine()}.\n"]
        parts += [table.markdown() for table in tables]
        arguments.out.write_text("\n".join(parts), "utf-8")
        say(f"written: {arguments.out}")
    if arguments.json:
        print(json.dumps({"machine": machine(), **numbers}, indent=2))
    else:
        print("\n".join([f"{heading}: {machine()}\n", *(table.plain() for table in tables)]))


def machine() -> str:
    """Cores, memory and versions: enough to judge a number, and no names or paths."""
    parts = [f"{len(os.sched_getaffinity(0))} cores"]
    memory = _memory_gb()
    if memory:
        parts.append(f"{memory:.0f} GB")
    parts.append(f"{platform.system()} {platform.machine()}, Python {platform.python_version()}")
    parts += [f"{name} {version(name)}" for name in ("tantivy", "faiss-cpu", "numpy")]
    return ", ".join(parts)


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def p(values: Sequence[float], share: int) -> float:
    """A percentile."""
    return float(np.percentile(np.asarray(values), share))


def say(message: str) -> None:
    """Progress, which goes to stderr so that stdout can be piped."""
    print(message, file=sys.stderr, flush=True)


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


if __name__ == "__main__":
    print(machine())
