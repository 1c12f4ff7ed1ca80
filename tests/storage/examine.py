"""Run by tests: open stores, ask them, examine them; one line of JSON for each."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samples import SEAL, answers

from clew.errors import ClewError
from clew.index import vectors
from clew.store import EmbeddedStore
from entries import ill


def examine(folder: Path) -> dict[str, Any]:
    """`error`: said in our own words; `crash`: any other exception, whatever its kind."""
    report: dict[str, Any] = {"error": "", "crash": "", "answers": None, "ill": []}
    run(ask, folder, report)
    if report["crash"] or report["error"] or report["ill"]:
        run(mend, folder, report)
    return report


def run(step: Callable[..., None], folder: Path, report: dict[str, Any]) -> None:
    try:
        store = EmbeddedStore(folder, ivf_threshold=SEAL["threshold"])
        step(store, report)
        store.close()
    except BaseException:  # Rust panics are no Exception
        report["crash"] += f"{step.__name__}: {traceback.format_exc().strip()}"


def ask(store: EmbeddedStore, report: dict[str, Any]) -> None:
    report["ill"] = ill(store)
    try:
        report["answers"] = answers(store)
    except ClewError as error:
        report["error"] = str(error)
    report["ill"] += ill(store)


def mend(store: EmbeddedStore, report: dict[str, Any]) -> None:
    store.indexes.rebuild()
    report["mended"] = answers(store)
    report["ill after mending"] = ill(store)


if __name__ == "__main__":
    vectors.TAIL_ROWS = SEAL["tail_rows"]
    for argument in sys.argv[1:]:
        print(json.dumps(examine(Path(argument))), flush=True)
    os._exit(0)  # how a process leaves is another test's question
