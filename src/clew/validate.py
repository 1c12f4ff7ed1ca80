"""Checks of what callers give. Each answers whether a value will do; the caller, who knows what it
is for, says in the error what to give instead. Beside them, the one form that texts and vectors are
brought into."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from clew.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HALVES = re.compile("[\ud800-\udfff]")
"""What a shell makes of bytes that are no UTF-8: no model and no database takes them."""


def encodable(text: str) -> str:
    """The text with a mark in the place of each half character, so that it can be written."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[float]:
    """Whether it is a finite number within these bounds. A bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -math.inf < value < math.inf and least <= value <= most


def is_whole(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Whether it is an int within these bounds. A bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_vector(row: npt.NDArray[Any]) -> bool:
    """Whether it is one row of finite numbers."""
    import numpy as np

    return row.ndim == 1 and row.size > 0 and bool(np.isfinite(row).all())


def as_row(given: Any) -> npt.NDArray[np.float32] | None:
    """One row of finite numbers, of whatever can be made one; else None."""
    import numpy as np

    try:
        row = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        return None
    return row if is_vector(row) else None


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows of length 1. A row without a direction (zeros, or not finite) becomes zeros, which is
    near to nothing, rather than NaN, which would spoil every comparison it is in."""
    import numpy as np

    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines of a plain or gzipped file that are not blank, with their numbers, so that an error can
    name its place."""
    import gzip
    import zlib

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
