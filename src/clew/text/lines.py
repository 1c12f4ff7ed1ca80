"""Lines of plain or gzipped files, with their numbers, so that an error can name its place."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clew.errors import InputError

Complain = Callable[[Path, int, str], None]
"""Told (file, line, what is wrong): raises, or counts and lets the row be left out."""


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


def rows(file: Path, problems: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, text in lines(file):
        try:
            row = json.loads(text)
        except ValueError as error:
            problems(file, number, f"not JSON: {error}")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            problems(file, number, 'each line is an object such as {"_id": "1", "text": "…"}')
