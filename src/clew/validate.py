"""Checks of what callers give. Some answer whether a value will do: then the caller, who knows what
it is for, says in the error what to give instead. Beside them, the one form that texts and vectors
are brought into."""

from __future__ import annotations

import builtins
import functools
import inspect
import json
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from clew.errors import ArgumentError, ClewError, InputError, StoreError

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


def check_whole(name: str, given: Any, least: int = 1, most: int | None = None) -> int:
    """Return a whole number, numpy's as well, or an InputError that names what it is of. None is
    larger than any container."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} must be a whole number {bounds}, not {given!r:.100}")
    return min(number, sys.maxsize)


def check_number(name: str, given: Any, least: float = 0.0, most: float = 1.0) -> float:
    """Return a number, numpy's as well, or such an error."""
    from numbers import Real

    number = isinstance(given, Real) and not isinstance(given, bool)
    if not number or not least <= given <= most:  # NaN is not, either
        raise InputError(f"{name} must be a number from {least:g} to {most:g}, not {given!r:.100}")
    return float(given)


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


def check_row(given: Any) -> npt.NDArray[np.float32]:
    """The same, or an InputError."""
    import numpy as np

    if (row := as_row(given)) is None:
        raise InputError("a vector is one row of finite numbers")
    return np.ascontiguousarray(row)


def escape_unprintable(text: str) -> str:
    """JSON as it may be shown: JSON lets control characters and such as turn the direction of text
    stand for themselves, but a terminal obeys some, and UTF-8 has no lone surrogates."""
    return text if text.isprintable() else re.sub(r"[^ -~\n]", _escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def unit(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows of length 1. A row without a direction (zeros, or not finite) becomes zeros, which is
    near to nothing, rather than NaN, which would spoil every comparison it is in."""
    import numpy as np

    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def unit_row(given: Any) -> npt.NDArray[np.float32]:
    """One vector at length 1, or an InputError where it is none."""
    row: npt.NDArray[np.float32] = unit(check_row(given).reshape(1, -1))[0]
    return row


ALONE = 250_000
"""Multiplications up to which OpenBLAS works in one thread."""


def multiply(
    rows: npt.NDArray[np.float32],
    columns: npt.NDArray[np.float32],
    into: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.float32]:
    """The product of two matrices, the first a long one: in pieces for which BLAS takes no second
    thread, since where the other core is busy, to wait for one costs more than the work."""
    import numpy as np

    piece = max(1, ALONE // columns.size)
    whole = len(rows) // piece * piece
    products = np.empty((len(rows), columns.shape[1]), np.float32) if into is None else into
    pieces = rows[:whole].reshape(-1, piece, rows.shape[1])
    np.matmul(pieces, columns, out=products[:whole].reshape(-1, piece, columns.shape[1]))
    np.matmul(rows[whole:], columns, out=products[whole:])
    return products


def read_pairs(name: str, given: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE, as options have it; numbers and true/false are read as such."""
    pairs: dict[str, Any] = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals or not key or key[-1] in "<>!":
            raise InputError(f"{name} takes KEY=VALUE, not {pair!r:.100}; ranges are for Python")
        pairs[key] = _read_scalar(text)
    return pairs


def read_conditions(name: str, given: Iterable[str]) -> dict[str, Any]:
    """The same for a filter: one value of each key, or several, of which any will do. A text may be
    what a file has (true, "1.0"), and so may what it is read as."""
    conditions: dict[str, list[Any]] = {}
    for pair in given:
        for key, value in read_pairs(name, [pair]).items():
            text = pair.removeprefix(f"{key}=")
            flag = _FLAGS.get(text.lower())
            read = value if flag is None else flag
            forms = (text.lower(), text.capitalize(), text.upper()) if flag is not None else ()
            conditions.setdefault(key, []).extend(dict.fromkeys((text, *forms, read)))
    return {key: of[0] if len(of) == 1 else of for key, of in conditions.items()}


_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""What front matter says so."""
_FILLED = re.compile(r"[-+]?0\d")
"""A code and no number: 01234."""


def _read_scalar(text: str) -> str | int | float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind, most in ((int, 2**63), (float, math.inf)):
        try:
            number = kind(text)
        except ValueError:
            continue
        # as readers of files keep it; Nan may be somebody
        return number if abs(number) < most and not _FILLED.match(text) else text
    return text


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


# ---------------------------------------------------------------------- at the boundary

C = TypeVar("C")
_FAILURES = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError),
    *(RecursionError, AssertionError, OSError),
)
_LIBRARIES = frozenset({"sqlite3", "duckdb", "_duckdb", "tantivy"})


def guarded(public: C) -> C:
    """Guard a public function, or the public methods of a class: what a wrong argument led
    to is an InputError that names the argument. Nothing is looked at before something went wrong,
    so that good calls cost nothing."""
    if isinstance(public, type):
        for name, member in list(vars(public).items()):
            if inspect.isfunction(member) and (not name.startswith("_") or name == "__init__"):
                setattr(public, name, guarded(member))
        return public
    call: Any = public

    @functools.wraps(call)
    def guard(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception as error:
            told = _explained(error, call, args, options)
            if told is error:
                raise
            raise told from error

    return typing.cast(C, guard)


def _explained(error: Exception, call: Any, args: Any, options: Any) -> Exception:
    """Our own error where an argument is to blame, else the error itself."""
    of_library = type(error).__module__.partition(".")[0] in _LIBRARIES
    if isinstance(error, ClewError) or not (of_library or isinstance(error, _FAILURES)):
        return error
    name = call.__qualname__.removesuffix(".__init__")
    try:
        given = inspect.signature(call).bind(*args, **options).arguments
    except TypeError:  # too many, too few, unknown: Python's own words
        return ArgumentError(str(error))
    namespace = _Namespace(call.__globals__)
    for key, value in given.items():
        kind = call.__annotations__.get(key, "Any")
        form = eval(kind, {}, namespace) if isinstance(kind, str) else kind  # noqa: S307 - our own
        several = inspect.signature(call).parameters[key].kind
        if several is inspect.Parameter.VAR_KEYWORD:
            continue
        if not is_of(value, form):
            return InputError(f"{name}(): {key} must be {_described(kind)}, not {_shown(value)}")
    for text in _texts(given.values()):
        if "\0" in text or _HALVES.search(text):
            said = "a NUL" if "\0" in text else "half a character (a lone surrogate)"
            return InputError(f"{name}(): {_shown(text)} has {said} in it: take it out")
    if of_library or (
        isinstance(error, OSError) and not isinstance(error, (InterruptedError, TimeoutError))
    ):
        return StoreError(f"{error}: may you read and write there, and is the disk well?")
    if isinstance(error, (OverflowError, RecursionError)):
        return InputError(f"{name}(): a value is too large or too deep: {error}")
    if not given.keys() - {"self"}:
        return StoreError(f"{name}() failed: {error!r}: see `clew doctor`")
    if isinstance(error, TypeError):
        return ArgumentError(f"{name}(): {error}")
    return InputError(f"{name}(): the values given make no sense: {error!r}")


class _Namespace(dict[str, Any]):
    """Names in annotations; those that are imported for type checks only stand for anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def _shown(value: object) -> str:
    try:
        return encodable(ascii(value))[:100]
    except Exception:  # an object may say anything of itself
        return f"an object of {type(value).__name__}"


def _described(kind: object) -> str:
    return str(kind).replace(" | None", " or None").replace("Sequence[", "several of [")


def _texts(values: Iterable[Any], depth: int = 4) -> Iterator[str]:
    for value in values:
        if isinstance(value, (str, Path)):
            yield str(value)
        elif depth and isinstance(value, Mapping):
            yield from _texts([*value.keys(), *value.values()], depth - 1)
        elif depth and isinstance(value, (list, tuple, set, frozenset)):
            yield from _texts(value, depth - 1)


def is_of(value: object, form: Any) -> bool:
    """Whether a value is of the type that an annotation means, as far as can be seen in it without
    using it up. What is no plain type passes."""
    origin, parts = typing.get_origin(form), typing.get_args(form)
    if form is Any:
        return True
    if form is None or form is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, str) and value in parts
    if form in (int, float):
        return (is_number if form is float else is_whole)(value)
    if isinstance(form, type) and origin is None:
        if not getattr(form, "_is_protocol", False):
            return isinstance(value, form)
        return all(hasattr(value, name) for name in vars(form) if not name.startswith("_"))
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Callable):  # type: ignore[arg-type]
        return callable(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, origin):
        # numpy's arrays are no Sequence, but will do
        return (isinstance(value, str) and parts == (str,)) or hasattr(value, "__array__")
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(is_of(k, parts[0]) and is_of(v, parts[1]) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)) and parts and origin is not tuple:
        return all(is_of(each, parts[0]) for each in value)
    return True
