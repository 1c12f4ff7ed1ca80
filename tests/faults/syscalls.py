"""A process whose every file operation is held up until somebody says how it ends.

Linux's seccomp tells a supervisor of each system call, whichever library makes it: SQLite, DuckDB
and Tantivy do not read and write through Python. It takes no compiler and no rights.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

# Numbers by machine: x86_64, aarch64; -1 where there is none.
_CALLS = {
    "read": (0, 63),
    "pread64": (17, 67),
    "write": (1, 64),
    "pwrite64": (18, 68),
    "writev": (20, 66),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "ftruncate": (77, 46),
    "open": (2, -1),
    "openat": (257, 56),
    "rename": (82, -1),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, -1),
    "unlinkat": (263, 35),
    "mkdir": (83, -1),
    "mkdirat": (258, 34),
    "fallocate": (285, 47),
}
_PLACES = {"open": 0, "rename": 0, "unlink": 0, "mkdir": 0}
"""Which argument is a path; of those that end in `at` the second."""
_MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
ERRORS = {
    **dict.fromkeys(("read", "pread64"), (errno.EIO,)),
    **dict.fromkeys(("write", "pwrite64", "writev"), (errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("fsync", "fdatasync"), (errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("ftruncate", "fallocate"), (errno.EIO, errno.ENOSPC)),
    **dict.fromkeys(("open", "openat"), (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOSPC)),
    **dict.fromkeys(("rename", "renameat", "renameat2"), (errno.EIO, errno.EACCES, errno.ENOSPC)),
    **dict.fromkeys(("unlink", "unlinkat"), (errno.EIO, errno.EACCES)),
    **dict.fromkeys(("mkdir", "mkdirat"), (errno.EACCES, errno.ENOSPC)),
}
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_PATIENCE = 60_000
"""Milliseconds without any call, after which it is let go."""
_LISTEN = 1 | 8 | 16
"""All threads (1), a listener (8), and an error rather than a thread's number (16)."""

Decide = Callable[[str, str], int | None]
"""Call and file → the error it ends with, 0 to let it be, None to kill the process."""


def why_not() -> str:
    """Why this cannot be done here; empty where it can."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return "seccomp takes Linux on x86_64 or aarch64"
    return ""


def be_supervised(channel: socket.socket) -> None:
    """From now on this process, all of its threads, asks at the other end of the channel."""
    column, machine, seccomp = _MACHINES[platform.machine()]
    numbers = [row[column] for row in _CALLS.values() if row[column] >= 0]
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 0)]
    for i, number in enumerate(numbers):
        steps.append((0x15, len(numbers) - i, 0, number))
    steps += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    listener = libc.syscall(seccomp, 1, _LISTEN, program)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(channel, [b"!"], [listener])
    os.close(listener)


def supervise(pid: int, channel: socket.socket, folder: Path, decide: Decide) -> None:
    """Answer for every operation on a file below `folder`, till the process is gone."""
    column = _MACHINES[platform.machine()][0]
    names = {row[column]: name for name, row in _CALLS.items()}
    libc = ctypes.CDLL(None, use_errno=True)
    fds = socket.recv_fds(channel, 1, 1)[1]
    if not fds:
        return
    (listener,) = fds
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while poll.poll(_PATIENCE)[0:1] and poll.poll(0)[0][1] & select.POLLIN:
        notice = ctypes.create_string_buffer(80)
        if libc.ioctl(listener, ctypes.c_ulong(_RECEIVE), notice) < 0:
            continue  # it was killed in between
        number, thread, _, call = struct.unpack_from("QIIi", notice)
        arguments = struct.unpack_from("6Q", notice, 32)
        name = names[call]
        file = _file(thread, name, arguments)
        verdict: int | None = 0
        if file.startswith(str(folder)):
            verdict = decide(name, file)
        if verdict is None:
            os.kill(pid, signal.SIGKILL)
            break
        answer = struct.pack("QqiI", number, 0, -verdict, 0 if verdict else _CONTINUE)
        libc.ioctl(listener, ctypes.c_ulong(_SEND), ctypes.create_string_buffer(answer))
    os.close(listener)


def _file(thread: int, call: str, arguments: tuple[int, ...]) -> str:
    """The file that a call is about; empty where that cannot be told."""
    with contextlib.suppress(OSError):
        if call not in _PLACES and not call.endswith(("at", "at2")):
            return str(Path(f"/proc/{thread}/fd/{arguments[0]}").readlink())
        with Path(f"/proc/{thread}/mem").open("rb", 0) as memory:
            memory.seek(arguments[_PLACES.get(call, 1)])
            # up to the end of the page: what follows may not be there
            size = min(4096, 4096 - arguments[_PLACES.get(call, 1)] % 4096 + 4096)
            with contextlib.suppress(OSError):
                path = memory.read(size).split(b"\0")[0].decode(errors="replace")
                if path.startswith("/"):
                    return path
                return f"{Path(f'/proc/{thread}/cwd').readlink()}/{path}"
    return ""
