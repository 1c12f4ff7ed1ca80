"""The resident process of a store (`clew serve`), as other processes of the same user find it.

`clew search` asks it before anything else is imported, so this needs next to nothing itself. Where
nobody answers, or not for this store with these settings, the command does its work itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, which takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

SOCKET = "serve.sock"
LONGEST_PATH = 100
"""Bytes of a socket's path: systems take 104 or 108."""
PATIENCE = 10.0
"""Seconds to wait for an answer: past it, a command does the work by itself."""
COMMANDS = ("search", "recall")
FOLDER = ".clew"
_OTHERS = ("HOME", "TZ", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
_OWN = ("CLEW_MEMORY", "CLEW_TOKEN")
_DISPLAY = ("COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TERM", "TTY_COMPATIBLE")


def socket_file(place: str) -> str:
    """Where the server of a folder, or of a memory's file, listens: within what belongs to the
    store, or among the user's own files where that path is too long for a socket."""
    beside = f"{place}{FOLDER}" if os.path.isfile(place) else os.path.join(place, FOLDER)  # noqa: PTH113, PTH118
    path = os.path.join(beside, SOCKET)  # noqa: PTH118
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    from hashlib import blake2b

    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/clew-{os.getuid()}"  # noqa: S108
    name = blake2b(os.fsencode(os.path.realpath(place)), digest_size=12).hexdigest()
    return os.path.join(runtime, f"clew-{name}.sock")  # noqa: PTH118


def digest_settings() -> str:
    """What of the environment decides an answer, in a form that gives no key away."""
    from hashlib import blake2b

    wanted = {
        name: value
        for name, value in os.environ.items()
        if name in _OTHERS
        or name.endswith("_API_KEY")
        or (name.startswith("CLEW_") and name not in _OWN)
    }
    return blake2b(repr(sorted(wanted.items())).encode("utf-8", "surrogateescape")).hexdigest()


def answer_command(arguments: list[str]) -> int | None:
    """Have a resident process answer, and print what it says; the exit code. None: there is none
    for this command, this store and these settings."""
    if not arguments or arguments[0] not in COMMANDS or not hasattr(os, "getuid"):
        return None
    if (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8"):
        return None
    place = _find_place(arguments)
    if place is None or not os.path.exists(path := socket_file(place)):  # noqa: PTH110
        return None
    terminal = sys.stdout.isatty()
    request = {
        "arguments": arguments,
        "place": place,
        "folder": os.getcwd(),  # noqa: PTH109
        "settings": digest_settings(),
        "terminal": terminal,
        "columns": os.get_terminal_size().columns if terminal else 0,
        "display": {name: os.environ[name] for name in _DISPLAY if name in os.environ},
    }
    try:
        answer = post(path, "/command", request)
    except (OSError, ValueError):  # nobody is there, or not one of ours
        return None
    if answer is None:
        return None
    sys.stderr.write(answer["error"])
    sys.stdout.write(answer["output"])
    return int(answer["code"])


def _find_place(arguments: list[str]) -> str | None:
    """The store that a command means, as far as can be told without reading anything."""
    given = _option(arguments, ("--store", "-C") if arguments[0] == "search" else ("--db",))
    if given == "":
        return None
    if arguments[0] == "recall":
        file = given or os.environ.get("CLEW_MEMORY") or "memory.db"
        path = os.path.abspath(os.path.expanduser(file))  # noqa: PTH100, PTH111
        return path if "://" not in file and os.path.isfile(path) else None  # noqa: PTH113
    if given:
        folder = os.path.abspath(os.path.expanduser(given))  # noqa: PTH100, PTH111
        return os.path.dirname(folder) if os.path.basename(folder) == FOLDER else folder  # noqa: PTH119, PTH120
    folder = os.getcwd()  # noqa: PTH109
    while not os.path.isdir(os.path.join(folder, FOLDER)):  # noqa: PTH112, PTH118
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return None
        folder = above
    return folder


def _option(arguments: list[str], names: tuple[str, ...]) -> str | None:
    """The value of an option; "" where that is not plain to see. The server, which reads all of
    them, has the last word."""
    for at, each in enumerate(arguments):
        if each == "--":
            return None
        if each in names:
            return arguments[at + 1] if at + 1 < len(arguments) else ""
        if each.startswith(f"{names[0]}="):
            return each[len(names[0]) + 1 :]
        if len(names) > 1 and each.startswith(names[1]):
            return ""
    return None


def post(path: str, route: str, request: object) -> dict[str, Any] | None:
    """Ask the server behind a socket of this user; None: it has no answer to this."""
    import json
    import socket
    import stat

    about = os.lstat(path)
    if not stat.S_ISSOCK(about.st_mode) or about.st_uid != os.getuid():
        return None
    body = json.dumps(request).encode("utf-8", "surrogatepass")
    head = (
        f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(PATIENCE)
        asked.connect(path)
        if not is_own(asked):
            return None
        asked.sendall(head.encode() + body)
        with asked.makefile("rb") as answer:
            status = answer.readline().split()
            length = -1
            while (line := answer.readline()) not in (b"\r\n", b"\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            said = answer.read(length) if length >= 0 else b""
    if len(status) < 2 or status[1] != b"200" or len(said) != length:
        return None
    found = json.loads(said)
    return found if isinstance(found, dict) else None


def is_own(connected: object) -> bool:
    """Whether the process at the other end is this user's, where the system says so."""
    import socket
    import struct

    assert isinstance(connected, socket.socket)
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    said = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", said)[1] == os.getuid())
