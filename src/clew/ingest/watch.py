"""Watch folders, and have what changed in them indexed.

An editor saves by writing another file and renaming it, a branch switch changes thousands at once,
a folder may be deleted and made again. So changes are collected for a moment, named by where they
are and not by what happened there, and a folder that is another one than before is read whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from clew.errors import ClewError, counted, needs_extra
from clew.ingest.walk import is_left_out

STEP, DEBOUNCE = 50, 400
"""Milliseconds without a change after which what has changed is indexed, and how long to wait for
such a pause at most."""
LOOK_AGAIN = 1_000
"""Milliseconds after which folders are looked at for being gone or back, without any change."""
RETRY = 30.0
"""Seconds after which what could not be indexed is tried again, whether anything changes or not."""
MOST_PATHS = 8
"""Changed paths that are looked at one by one; with more, the whole folder is walked."""
_RULES = (".gitignore", ".clewignore", "clew.toml")
"""Files that say what is indexed, and where it belongs."""

Sync = Callable[[Sequence[Path]], None]
"""Brings the store up to date with these paths; without any, with all its folders."""
Identity = Mapping[Path, tuple[int, int] | None]


def watch_folders(
    folders: Callable[[], Iterable[Path]],
    sync: Sync,
    *,
    stop: threading.Event,
    notice: Callable[[str], None] = lambda _: None,
) -> None:
    """Call `sync` at once and after every change below `folders`, until `stop` is set. What goes
    wrong is told to `notice`, and watching goes on."""
    with needs_extra("serve", "watching"):
        from watchfiles import watch
    _try(sync, [], notice)
    while not stop.is_set():
        seen = _identify(folders())
        there = [folder for folder, identity in seen.items() if identity is not None]
        if not there:
            notice("no folder is there to watch: waiting for one to come back")
            _wait_for_one(folders, stop)
            _try(sync, [], notice)
            continue
        watching, missed, again = False, "", 0.0
        try:
            for changes in watch(
                *there,
                watch_filter=partial(_counts, there),
                debounce=DEBOUNCE,
                step=STEP,
                stop_event=stop,
                rust_timeout=LOOK_AGAIN,
                yield_on_timeout=True,
                raise_interrupt=True,
                ignore_permission_denied=True,
            ):
                if (now := _identify(folders())) != seen:
                    gone = [str(folder) for folder in seen if now.get(folder) is None]
                    notice(f"gone: {', '.join(gone)}" if gone else "a folder is back, or new")
                    if not gone:
                        _try(sync, [], notice)
                    break  # another folder, though of the same name, is not watched yet
                if changes or not watching or (missed and time.monotonic() >= again):
                    # all of what changed before the system's watches were set, or was missed
                    some = watching and not missed
                    paths = choose_paths(Path(path) for _, path in changes) if some else []
                    watching, missed = True, _try(sync, paths, notice, before=missed)
                    again = time.monotonic() + RETRY
        except OSError as error:  # gone between looking and watching, or too many to watch
            notice(f"cannot watch: {error}")
            stop.wait(LOOK_AGAIN / 1000)


def choose_paths(changed: Iterable[Path]) -> list[Path]:
    """The paths to look at; none, which means everything, where that is less work or a rule of what
    is indexed has changed."""
    paths = sorted(set(changed))
    if len(paths) > MOST_PATHS or any(path.name in _RULES for path in paths):
        return []
    return paths


def _counts(folders: Sequence[Path], _: object, path: str) -> bool:
    changed = Path(path)
    around = [folder for folder in folders if changed.is_relative_to(folder)]
    below = changed.relative_to(max(around, key=lambda f: len(f.parts))) if around else changed
    return not is_left_out(below.as_posix())


def _identify(folders: Iterable[Path]) -> Identity:
    found: dict[Path, tuple[int, int] | None] = {}
    for folder in folders:
        try:
            at = folder.stat()
            found[folder] = (at.st_dev, at.st_ino)
        except OSError:
            found[folder] = None
    return found


def _wait_for_one(folders: Callable[[], Iterable[Path]], stop: threading.Event) -> None:
    while not stop.wait(LOOK_AGAIN / 4000):
        if any(_identify(folders()).values()):
            return


def _try(
    sync: Sync, paths: Sequence[Path], notice: Callable[[str], None], *, before: str = ""
) -> str:
    """What went wrong, which is told unless it is what went wrong before; empty: nothing."""
    begun = time.perf_counter()
    try:
        sync(paths)
    except ClewError as error:
        what = counted(len(paths), "path") if paths else "all folders"
        if str(error) != before:
            notice(f"{what} not indexed after {time.perf_counter() - begun:.1f} s: {error}")
        return str(error)
    return ""
