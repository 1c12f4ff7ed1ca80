"""The bytes of a file, never more than asked for, and never waited for.

What a folder lists as a file may be anything by the time it is opened, and below /proc a file of
size 0 can go on without end or have nothing to give until something happens.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from clew.errors import InputError

__all__ = ["contents"]

MEGABYTE = 1024 * 1024
PAGE = 4096
"""Some of what is not on a disk can only be read in round numbers."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def contents(path: str | Path, *, max_bytes: int) -> bytes:
    """All bytes of a regular file. InputError when it is none, or has more; else an OSError."""
    # O_NONBLOCK: opening a pipe nobody writes to, or reading what is not there yet, would hang.
    with open(path, "rb", buffering=0, opener=lambda place, _: os.open(place, _FLAGS)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InputError("not a regular file")
        data = bytearray()
        step = (min(status.st_size, max_bytes) // PAGE + 1) * PAGE  # mostly, all of it at once
        while (more := file.read(step)) != b"":
            if more is None:
                raise InputError("reading it would mean waiting for what is not there yet")
            data += more
            if len(data) > max_bytes:
                limit = max_bytes / MEGABYTE
                raise InputError(f"it gives more than the {limit:.3g} MB that are read at most")
            step = MEGABYTE
        return bytes(data)
