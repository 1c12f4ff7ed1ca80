"""Small disks of memory that can be filled up and made read-only. Mounting takes root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    def __init__(self, place: Path):
        self.place = place
        self._filler = place / "filler"

    def fill(self, *, leave: int = 0) -> None:
        """Take all space but `leave` bytes."""
        status = os.statvfs(self.place)
        free = status.f_bavail * status.f_frsize - leave
        with self._filler.open("ab") as file, contextlib.suppress(OSError):
            file.write(b"\0" * max(0, free))

    def empty(self) -> None:
        self._filler.unlink()

    def read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.place))

    def writable(self) -> None:
        _run("mount", "-o", "remount,rw", str(self.place))


@contextlib.contextmanager
def mounted(place: Path, *, megabytes: int) -> Iterator[Disk]:
    place.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(place))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"cannot mount a disk here: {error}"
        # A green run that tried none of this would say more than it knows.
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    try:
        yield Disk(place)
    finally:
        # lazily: what a failed test left open must not keep it
        _run("umount", "--lazy", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
