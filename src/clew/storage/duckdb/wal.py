"""The log beside a DuckDB file, looked at before DuckDB replays it.

DuckDB takes a log that it cannot follow for one whose last write was cut off, and drops the rest of
it: after a crash that is right, since what was being written was promised to nobody. But a damaged
header, or a damaged length of an entry, has it drop writes that were whole. Those are told apart
here: behind what was cut off there is nothing, behind damage there are commits. Whatever is damaged
otherwise DuckDB finds by its checksums.

A log is a header (fields 100 to 103: kind, version, the file's identifier, how often it was written
anew), and entries: length and checksum, eight bytes each, and so many bytes.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["lost_commits"]

WRITTEN_BY = "2.0."
"""The DuckDB whose logs have this form."""
KIND = b"d\0b"
"""Field 100: this entry tells the version."""
VERSION = b"e\0"
KNOWN = 2
"""The version whose fields are known here. DuckDB itself refuses those that it does not know."""
IDENTIFIER = b"f\0\x10"
TIMES = b"g\0"
END = b"\xff\xff"
COMMIT = bytes.fromhex("0500000000000000e7fe7d722fed3d5e640064ffff")
"""The entry that ends each commit; always the same."""


def lost_commits(database: Path) -> bool:
    """Whether there is a log that DuckDB would drop, or a part of it, though it has commits."""
    import duckdb

    if not duckdb.__version__.startswith(WRITTEN_BY):
        return False  # its logs may have another form, and be well
    log = database.with_name(f"{database.name}.wal")
    try:
        data = log.read_bytes()  # not mapped: who has the file open may cut it short meanwhile
    except OSError:  # there is none
        return False
    return bool(data) and _lost(data)


def _lost(data: bytes) -> bool:
    begin = _header(data)
    if begin is None:
        # of a header that was cut off nothing has followed; of random bytes nothing is known
        return not _cut_off(data) or data.find(COMMIT) >= 0
    place = begin
    while place < len(data):
        after = place + 16 + int.from_bytes(data[place : place + 8], "little")
        if after > len(data):
            return data.find(COMMIT, place) >= 0
        place = after
    return False


def _header(data: bytes) -> int | None:
    """Where the entries begin; None: there is no whole header."""
    if data[:5] != KIND + VERSION:
        return None
    version, place = _number(data, 5)
    if version != KNOWN:
        end = data.find(END, place)
        return None if end < 0 else end + len(END)
    if data[place : place + 3] != IDENTIFIER:
        return None
    place += 3
    for _ in range(16):
        byte, place = _number(data, place)
        if byte > 255:
            return None
    if data[place : place + 2] != TIMES:
        return None
    _, place = _number(data, place + 2)
    return place + 2 if data[place : place + 2] == END else None


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Seven bits a byte, the last one below 128; and the place after it."""
    number = shift = 0
    while place < len(data):
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            break
    return number, place


LONGEST = 64
"""Bytes that a header has at most."""


def _cut_off(data: bytes) -> bool:
    """Whether it is the beginning of a header and nothing else."""
    start = KIND + VERSION
    return len(data) < LONGEST and start.startswith(data[: len(start)])
