"""Values of Ariadne's columns as Clew's fields want them.

Anybody may have edited the file by hand, and SQLite keeps any value in any column. Each function
gives what fits, and whether that says the same: where it does not, the caller keeps both.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import re
from typing import Any

from clew.errors import InputError
from clew.memory.arguments import (
    FIRST_MOMENT,
    LAST_MOMENT,
    MAX_CHARACTERS,
    TYPES,
    check_namespace,
)

__all__ = [
    "OWN",
    "content",
    "count",
    "identity",
    "kind",
    "labels",
    "listed",
    "mapping",
    "moment",
    "plain",
    "plain_row",
    "share",
    "space",
    "strength",
    "vector",
]

OWN = "ariadne"


def identity(table: str, number: int, made: Any) -> str:
    """A row's name among Clew's memories. Numbers begin with 1 in every database; the moment the
    row was made, which is never changed, tells them apart."""
    digest = hashlib.blake2b(repr(made).encode(), digest_size=4).hexdigest()
    return f"{OWN}-{'' if table == 'memories' else f'{table}-'}{number}-{digest}"


def content(raw: Any) -> tuple[str, bool]:
    """A text without white space around it, and not longer than a memory may be."""
    text = "" if raw is None else str(raw)
    fit = text.strip()[:MAX_CHARACTERS]
    return fit, raw is None or fit == raw


def kind(raw: Any) -> tuple[str, bool]:
    return (raw, True) if raw in TYPES else (TYPES[0], raw is None)


def space(raw: Any) -> tuple[str, bool]:
    """A namespace. Two that are odd must not become one: a digest tells them apart."""
    if raw is None:
        return "default", True
    with contextlib.suppress(InputError):
        if check_namespace(raw) == raw:
            return raw, True
    near = re.sub(r"[^\w.-]+", "-", str(raw)[:100]).strip("-.") or OWN
    return f"{near}-{hashlib.blake2b(repr(raw).encode(), digest_size=4).hexdigest()}", False


def share(raw: Any) -> tuple[float, bool]:
    """A number from 0 to 1."""
    if not _is_number(raw):
        return 0.5, raw is None
    return min(1.0, max(0.0, float(raw))), 0 <= raw <= 1


def moment(raw: Any) -> tuple[float | None, bool]:
    """Seconds since the epoch, of a year that can be written."""
    if _is_number(raw) and FIRST_MOMENT <= raw <= LAST_MOMENT:
        return float(raw), float(raw) == raw
    return None, raw is None


def count(raw: Any) -> tuple[int, bool]:
    return (raw, True) if isinstance(raw, int) and raw >= 0 else (0, raw is None)


def strength(raw: Any) -> tuple[float, bool]:
    return (float(raw), float(raw) == raw) if _is_number(raw) and raw > 0 else (1.0, raw is None)


def _is_number(raw: Any) -> bool:
    return isinstance(raw, (int, float)) and math.isfinite(raw)


def labels(raw: Any) -> tuple[list[str], bool]:
    """Tags, which Ariadne keeps as a JSON list."""
    if raw is None:
        return [], True
    given = _json(raw)
    if not isinstance(given, list):
        return [], False
    names = [str(each).strip() for each in given if isinstance(each, (str, int, float))]
    names = list(dict.fromkeys(name for name in names if name and "\0" not in name))
    # Clew's tags are in small letters, whoever asks for them.
    return names, [name.lstrip("#").casefold() for name in names] == given


def listed(raw: Any) -> list[Any]:
    """The members of a JSON list; none where it is not one."""
    given = _json(raw)
    return given if isinstance(given, list) else []


def mapping(raw: Any) -> tuple[dict[str, Any], bool]:
    """A user's own metadata, which Ariadne keeps as a JSON object. The place that everything from
    Ariadne takes among it must be free."""
    if raw is None:
        return {}, True
    given = _json(raw)
    if not isinstance(given, dict):
        return {}, False
    return {key: value for key, value in given.items() if key != OWN}, OWN not in given


def _json(raw: Any) -> Any:
    """What the text says, where all of it can be written as JSON again; else None."""
    try:
        value = json.loads(raw, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        return None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity are Python's, not JSON's


def vector(raw: Any) -> tuple[Any, bool]:
    """An embedding: little-endian float32, of any dimension. One without a direction is none."""
    import numpy as np  # only where there are vectors

    if raw is None:
        return None, True
    if not isinstance(raw, bytes) or not raw or len(raw) % 4:
        return None, False
    row = np.frombuffer(raw, "<f4").astype(np.float32)
    usable = bool(np.isfinite(row).all() and row.any())
    return (row, True) if usable else (None, False)


# ---------------------------------------------------------------- whatever it is, as JSON


def plain(value: Any) -> Any:
    """A value of SQLite's as one of JSON's."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a JSON object, without what is NULL."""
    return {name: plain(value) for name, value in row.items() if value is not None}
