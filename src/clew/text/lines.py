"""Lines of plain or gzipped files, with their numbers, so that an error can name its place."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from clew.errors import InputError


def find(folder: Path, *names: str) -> Path | None:
    places = [folder / (name + ending) for name in names for ending in ("", ".gz")]
    return next((place for place in places if place.is_file()), None)


def need(folder: Path, *names: str) -> Path:
    found = find(folder, *names)
    if found is None:
        raise InputError(f"{folder} has no {names[0]} (or {names[0]}.gz)")
    return found


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    number = 0
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise InputError(f"{file}:{number}: not UTF-8: {error.reason}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{file}:{number + 1}: the gzip file is truncated or damaged after line {number}: "
            "fetch it again"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
