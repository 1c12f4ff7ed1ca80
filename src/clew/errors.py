"""Every error Clew raises on purpose, in one small tree.

    ClewError
    ├── ConfigError    a setting is wrong: clew.toml, an environment variable, an argument
    ├── StoreError     the store cannot be opened, read or written
    ├── SourceError    one ranked list could not be produced
    ├── ModelError     weights are missing, damaged, or a model endpoint failed
    └── InputError     a query, record, vector or filter makes no sense (also a ValueError)

Each message ends with what the reader can do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

__all__ = ["ClewError", "ConfigError", "InputError", "ModelError", "SourceError", "StoreError"]


class ClewError(Exception):
    """Root of every error raised by Clew."""


class ConfigError(ClewError):
    """A setting has a wrong name or value."""


class StoreError(ClewError):
    """The store cannot be opened, read or written."""


class SourceError(ClewError):
    """A source could not give its ranked list."""


class ModelError(ClewError):
    """A model is missing, damaged or unreachable."""


class InputError(ClewError, ValueError):
    """What was asked or given makes no sense."""


class ArgumentError(InputError, TypeError):
    """Where Python itself would say TypeError: an unknown argument, one too many or too few."""


@contextmanager
def needs_extra(extra: str, what: str, kind: type[ClewError] = ConfigError) -> Iterator[None]:
    """Surround imports of packages that only `what` needs: what to install if they are not here."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or "").partition(".")[0] if type(error) is not ImportError else error
        raise kind(f"{what} needs {missing}: pip install 'clew-search[{extra}]'") from error


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint for an unknown name: the closest valid one, or all of them."""
    import difflib  # for the unlucky only

    names = sorted(valid)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"valid: {', '.join(names)}"


def check_known(
    said: str, valid: Collection[str], *names: object, kind: type[ClewError] = InputError
) -> None:
    """Refuse what is none of the valid names, with a message that begins with what is said."""
    for name in names:
        if name not in valid:
            raise kind(f"{said} {name!r:.100}: {nearest(str(name), valid)}")


def counted(number: int, thing: str, things: str = "") -> str:
    """`1 record`, `0 records`, `2,000 records`: numbers of things in messages."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
