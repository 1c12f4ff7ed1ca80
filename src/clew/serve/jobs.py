"""Indexing within the resident process: one run of a store at a time, and what is known of it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clew.background import Writer
from clew.errors import ClewError, ModelError, StoreError, counted
from clew.ingest.sync import IndexReport, was_indexed
from clew.ingest.watch import watch_folders
from clew.serve.stores import ServedStore

GRACE = 10.0
"""Seconds to wait for what is being written when the server ends."""
EVENTS = 50
"""Things that happened, as many as are remembered."""


class IndexJob:
    """What indexes one folder's store, told to or because files have changed."""

    def __init__(self, store: ServedStore):
        self._store, self._busy, self._lock = store, threading.Lock(), threading.Lock()
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._embedding = Writer(self._embed, name="clew-embed")
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._state: dict[str, Any] = {
            "state": "idle",
            "stage": "",
            "done": 0,
            "total": 0,
            "began_at": None,
            "report": None,
            "error": None,
        }
        self._told: Callable[[str], None] | None = None
        self.version = 0
        """Grows with every change of what `describe` gives."""

    def describe(self) -> dict[str, Any]:
        with self._lock:
            watching = self._watcher is not None and self._watcher.is_alive()
            own = {"store": self._store.name, "watching": watching}
            return {**own, **self._state, "events": list(self._events)}

    def _tell(self, event: str = "", **state: Any) -> None:
        with self._lock:
            self._state.update(state)
            if event:
                self._events.append({"at": time.time(), "text": event})
            self.version += 1
        if event and self._told is not None:
            self._told(event)

    def start(self, *, force: bool = False, embed: bool = True) -> dict[str, Any]:
        """Bring the store up to date with its folders, in the background."""
        if self._busy.locked():
            raise StoreError("the store is being indexed already: see GET /index")
        thread = threading.Thread(
            target=self._run_quietly, args=(force, embed), name="clew-index", daemon=True
        )
        self._tell(state="running", began_at=time.time(), report=None, error=None, stage="")
        thread.start()
        return self.describe()

    def _run_quietly(self, force: bool, embed: bool) -> None:
        with suppress(ClewError):  # told already
            self.run((), force=force, embed=embed)

    def run(self, paths: Sequence[Path] = (), **options: Any) -> IndexReport:
        with self._busy:
            self._tell(state="running", began_at=time.time(), error=None, stage="looking")
            try:
                report = self._store.engine.index(list(paths), progress=self._progress, **options)
            except BaseException as error:
                self._tell(f"failed: {error}", state="failed", error=str(error))
                raise
        self._tell(describe_changes(report), state="done", stage="", report=report.to_dict())
        return report

    def _progress(self, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise StoreError("the server ends: what was done so far is kept")
        self._tell(stage=stage, done=done, total=total)

    # ------------------------------------------------------------------ watching

    def watch(self, told: Callable[[str], None] | None = None) -> None:
        """Index what changes from now on, in the background. `told` hears of what happens."""
        self._told = told
        base, known = Path(self._store.place), list[Path]()

        def folders() -> list[Path]:
            with suppress(ClewError):  # the store is gone, and what it knew may come back
                roots = self._store.engine.store.files.roots().values()
                known[:] = [(base / folder).resolve() for folder in roots]
            return known

        def follow() -> None:
            try:
                watch_folders(folders, self._sync, stop=self._stop, notice=self._tell)
            except ClewError as error:
                self._tell(f"not watching: {error}")

        self._watcher = threading.Thread(target=follow, name="clew-watch", daemon=True)
        self._watcher.start()
        self._tell(f"watching {', '.join(map(str, folders())) or base}")

    def _sync(self, paths: Sequence[Path]) -> None:
        engine = self._store.engine
        if not engine.store.files.roots():  # to index none of them means the store's own folder
            return
        # An editor's own files come and go: they were never indexed.
        known = [
            path
            for path in paths
            if path.exists() or was_indexed(engine.store, engine.root or Path(), path)
        ]
        if known or not paths:
            self.run(known, embed=False)  # found by their words at once, whatever embedding takes
            self._embedding.wake()

    def _embed(self) -> None:
        try:
            if count := self._store.engine.embed(progress=self._progress):
                self._tell(f"{counted(count, 'passage')} embedded", stage="")
        except ModelError as error:
            if self._state["error"] != (said := f"found by words only: {error}"):
                self._tell(said, error=said)
        except ClewError as error:
            self._tell(str(error))

    def wait(self) -> None:
        """For as long as it watches."""
        while self._watcher is not None and self._watcher.is_alive():
            self._watcher.join(1)

    def close(self) -> None:
        """Stop watching, and wait for what is being written."""
        self._stop.set()
        self._embedding.close(GRACE)
        if self._watcher is not None:
            self._watcher.join(GRACE)
        with self._busy:
            pass


def describe_changes(report: IndexReport) -> str:
    """What a run did, in a line; empty: nothing."""
    done = [
        f"{counted(len(files), 'file')} {name}"
        for name in ("added", "changed", "moved", "removed")
        if (files := getattr(report, name))
    ]
    if report.embedded:
        done.append(f"{counted(report.embedded, 'passage')} embedded")
    if not done:
        return ""
    names = [*report.added, *report.changed, *report.removed, *(new for _, new in report.moved)]
    shown = f": {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else ""
    return ", ".join(done) + shown
