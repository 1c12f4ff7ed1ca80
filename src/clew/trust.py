"""Which folders may say where Clew reaches outside of them.

A clew.toml comes with a folder, and a folder may come from anybody. What it says of ranking and
collections takes effect at once. What would send texts or keys to an address, read files elsewhere
or put a store there does so only when the user has agreed to that very file: with `clew trust
FOLDER`, or by `CLEW_TRUST`, a list of folders in the environment. The user's own configuration, the
environment and arguments need no such thing.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from clew.errors import ConfigError

ENVIRONMENT = "CLEW_TRUST"
MOST_PLACES, LONGEST_NAMES = 50, 100_000
"""That a repository's .git may lead to, and bytes of a file that names them."""
_REMOTE = ("model_url", "llm", "llm_url")
_API = re.compile(r"(?:openai|gemini)(?::|$)|auto-api$")
_LOGIN = re.compile(r"(?<!/)//(?!/)|^(?=[^\s/:]+:(?!//|\\)\S*$)")
"""Where user:password may begin: behind the scheme, or an address that has none."""
_KEY = (
    r"(?i)([?&;](?:x-)?(?:api|access|auth|client|ssl)?[_-]?(?:key|token|password|secret)=)[^&#\s]+"
)
LONGEST_SETTINGS, MOST_PARTS = 250_000, 10
"""Bytes of a clew.toml, and parts of a key in it (a.b.c): reading takes their square."""
_QUOTED = re.compile(
    r'''"""(?:[^"\\]|\\.?|"(?!""))*+(?:"{3,5}|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*+(?:\'{3,5}|\Z)|'''
    r""""(?:[^"\\\n]|\\.?)*+"?|\'[^\'\n]*+\'?|\#[^\n]*+""",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")


class UntrustedError(ConfigError):
    """A folder wants to reach outside of itself, and the user has not agreed to that."""

    def __init__(self, folder: Path, wants: list[str]):
        self.folder = folder
        listed = "; ".join(wants)
        super().__init__(
            f"{folder} reaches outside of itself, and may be somebody else's: {listed}. If that is "
            f"as you want it, run: clew trust {folder}"
        )


def user_folder() -> Path:
    """Where the user's own settings are, and whom they trust."""
    if sys.platform == "win32" and (named := os.environ.get("APPDATA")):
        return Path(named, "clew")
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "clew")
    except RuntimeError:  # a user without a home, as in some containers
        return Path(os.devnull, "clew")


def trust_file() -> Path:
    """What the user agreed to stands in there."""
    return user_folder() / "trust.json"


def cache_folder(name: str, variable: str = "") -> Path:
    """Where Clew keeps what it can fetch or make again: as this variable of the environment says,
    or else a folder of this name in the user's cache."""
    if named := os.environ.get(variable):
        return Path(named).expanduser()
    home = os.environ.get("HOME") if sys.platform == "linux" else None
    if home and "XDG_CACHE_HOME" not in os.environ:  # the usual, before the import, which is slow
        return Path(home, ".cache", "clew", name)
    import platformdirs

    return Path(platformdirs.user_cache_dir("clew"), name)


def read_toml(file: Path) -> tuple[dict[str, Any], bytes]:
    """What a clew.toml says, and the file itself, which somebody may have made to be waited for,
    endless, or slow to read."""
    import tomllib

    try:
        content = read_regular(file, LONGEST_SETTINGS)
        text = content.decode("utf-8-sig")  # some editors begin a file with a mark
        if _LONG_KEY.search(_QUOTED.sub("a", text)):
            raise ValueError(f"a key of more than {MOST_PARTS} parts")
        return tomllib.loads(text), content
    except RecursionError:
        why: object = "it is nested too deeply"
    except (OSError, ValueError) as error:
        why = error
    raise ConfigError(f"{file}: {why}; correct it or delete it")


def read_regular(file: Path, most: int) -> bytes:
    """All of a file that somebody may have put there. A ValueError where it has more bytes, or is
    no file at all: a pipe would be waited for, a device go on for ever."""
    with open(file, "rb", opener=_open_regular) as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def _open_regular(path: str, flags: int) -> int:
    opened = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ValueError("it is no regular file")
    return opened


@contextmanager
def replace_file(file: Path, *, mode: int = 0o600, durable: bool = False) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of this one in one step, and is gone where that
    fails. Only the user may read it, unless `mode` says otherwise; `durable`: it is on the disk
    itself before that."""
    draft = file.with_name(f".clew-{os.urandom(6).hex()}.tmp")
    try:
        with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as opened:
            yield opened
            if durable:
                opened.flush()
                os.fsync(opened.fileno())
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def flush(*files: Path) -> None:
    """Have what was written to them on the disk itself."""
    for file in files:
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())


def hide_password(text: str) -> str:
    """The same without user:password@ in addresses, and without keys in their queries."""
    before, _, host = text.rpartition("@")
    named = host.isdigit() and "//" not in before  # a model and its dimension
    if not named and (start := _LOGIN.search(before)):
        text = f"{before[: start.end()]}…@{host}"
    return re.sub(_KEY, r"\1…", text) if "=" in text else text


def find_origin(address: str) -> str:
    """`scheme://host:port` of an address, https where it has no scheme: what a key is bound to.
    Empty: it is none."""
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}:{port}" if port and parts.hostname else ""


def find_outward(values: Mapping[str, Any], folder: Path) -> list[str]:
    """What these settings of a folder's clew.toml want outside of it, in words."""
    wants = [
        f"{name} = {hide_password(str(values[name]))!r} (texts are sent there)"
        for name in _REMOTE
        if values.get(name)
    ]
    if _API.match(str(values.get("model", ""))):
        wants.insert(0, f"model = {values['model']!r} (texts and your key are sent there)")
    if str(values.get("model", "")).startswith("hf:"):
        wants.insert(0, f"model = {values['model']!r} (it is fetched from the hub, and run)")
    if (store := str(values.get("store", ""))) and _is_elsewhere(store, folder):
        wants.append(f"store = {hide_password(store)!r} (records are kept there)")
    sources = values.get("sources")
    tables = {"lookup": values.get("lookup")}
    if isinstance(sources, Mapping):
        tables |= {f"sources.{name}": table for name, table in sources.items()}
    for name, table in tables.items():
        for option, value in table.items() if isinstance(table, Mapping) else ():
            for text in value if isinstance(value, (list, tuple)) else [value]:
                if not isinstance(text, str) or not text:
                    continue
                if "://" in text or option in ("address", "web"):
                    wants.append(f"{name}.{option} = {hide_password(text)!r} (queries go there)")
                elif is_outside(text, folder):
                    wants.append(f"{name}.{option} = {text!r} (files are read there)")
                elif option == "cache_file":
                    wants.append(f"{name}.{option} = {text!r} (answers are taken from there)")
                elif option == "repositories" and any(
                    is_outside(str(place), folder) for place in _find_git(folder / text)
                ):
                    wants.append(f"{name}.{option} = {text!r} (its .git leads elsewhere)")
    return wants


def _find_git(repository: Path) -> Iterator[Path]:
    """What git would read for a repository: a `.git` may be a file that names another place, and
    that one may name more."""
    todo, seen = [repository / ".git", repository], set[Path]()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > MOST_PLACES:
            yield Path(repository.anchor)
            return
        yield place
        with suppress(OSError, ValueError):
            if place.is_file():
                named = _read_names(place).removeprefix("gitdir:").strip()
                todo.append(repository / named)
                continue
            names = "commondir", "info/alternates", "objects/info/alternates"
            for base, file in zip((place, place, place / "objects"), names, strict=True):
                if (place / file).is_file():
                    lines = _read_names(place / file).splitlines()
                    # Quoted, they may hide a path: none that one would write is.
                    todo += [base / ("/" if line.startswith('"') else line) for line in lines]
            if (place / "objects").is_dir():
                for each in (place, place / "objects", place / "objects" / "pack"):
                    yield from (Path(entry) for entry in os.scandir(each) if entry.is_symlink())


def _read_names(file: Path) -> str:
    try:
        return os.fsdecode(read_regular(file, LONGEST_NAMES))
    except ValueError:
        return "/"  # so long a one may name anything


def _is_elsewhere(store: str, folder: Path) -> bool:
    """Whether a store's URL leads out of the folder, as storage/__init__.py finds its place; that
    of a server always does."""
    path = store.partition("://")[2]
    if not store.startswith(("duckdb://", "embedded://")) or is_outside(path[1:], folder):
        return True
    return not (folder / path[1:]).parent.is_dir() and Path(path).parent.is_dir()


def is_outside(path: str, folder: Path) -> bool:
    """Whether a path, as settings or a store have it, leads out of the folder."""
    if path.startswith("~"):
        return True
    home = folder.resolve()
    try:
        place = (home / path).resolve()
    except (ValueError, RuntimeError):  # a NUL, a link to itself: who knows what opening it does
        return True
    return place != home and home not in place.parents


def check_settings(folder: Path, wants: list[str], content: bytes) -> None:
    """An UntrustedError where a clew.toml wants what the user has not agreed to."""
    if wants and not is_trusted(folder, content):
        raise UntrustedError(folder, wants)


def check_roots(folder: Path, roots: Mapping[str, str]) -> None:
    """An UntrustedError where a store names folders elsewhere that the user never gave it."""
    outside = {str((folder / r).resolve()) for r in roots.values() if is_outside(r, folder)}
    if not outside or _in_environment(folder):
        return
    if strange := sorted(outside.difference(_known(folder).get("roots", ()))):
        raise UntrustedError(folder, [f"the store indexes {name}" for name in strange])


def is_trusted_store(place: Path) -> bool:
    """Whether the user agreed to the store that this is, or is in: where it is kept, and whose it
    is."""
    if _in_environment(place.parent):
        return True
    whole = place.absolute()
    entries = trusted()
    return any(
        entries.get(str(store.parent.resolve()), {}).get("stores", {}).get(store.name)
        == _describe_store(store)
        for store in (whole, *whole.parents[:-1])
        if entries
    )


def is_known(place: Path) -> bool:
    """Whether derived files of a store count that Clew did not make itself, here."""
    if _in_environment(place):
        return True
    return not os.access(place, os.W_OK) and is_trusted_store(place)


def _describe_store(place: Path) -> list[Any] | None:
    try:
        return [str(place.resolve()), place.stat().st_uid]
    except OSError:
        return None


def is_trusted(folder: Path, content: bytes) -> bool:
    return _in_environment(folder) or _known(folder).get("settings") == _digest(content)


def trust(
    folder: Path,
    *,
    content: bytes | None = None,
    roots: Mapping[str, str] | None = None,
    stores: Iterable[str] = (),
) -> None:
    """Agree to a folder's clew.toml as it is now, to folders that its store indexes, or to stores
    in it, wherever they are kept and whose they are."""
    name = str(folder.resolve())
    outside = {str((folder / r).resolve()) for r in (roots or {}).values() if is_outside(r, folder)}
    kept = {store: _describe_store(folder / store) for store in stores}
    with _alone(user_folder()):
        entries = trusted()
        before = entries.get(name, {})
        entry = dict(before)
        if content is not None:
            entry["settings"] = _digest(content)
        if outside:
            entry["roots"] = sorted({*entry.get("roots", []), *outside})
        if agreed := {store: is_ for store, is_ in kept.items() if is_}:
            entry["stores"] = {**entry.get("stores", {}), **agreed}
        if entry != before:
            _write({**entries, name: entry})


def revoke(folder: Path) -> bool:
    """Whether there was anything to take back."""
    with _alone(user_folder()):
        entries = trusted()
        if entries.pop(str(folder.resolve()), None) is None:
            return False
        _write(entries)
        return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Alone, among all processes, with what is kept here, which is read before it is written."""
    from clew.protocols import hold_lock  # numpy, which few need so early

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot make {folder}: {error.strerror}; set {ENVIRONMENT}") from error
    with hold_lock(folder / "trust.lock", needed=False):
        yield


def trusted() -> dict[str, dict[str, Any]]:
    """All that the user agreed to, by folder."""
    file = trust_file()
    try:
        entries = json.loads(file.read_text("utf-8"))["folders"]
        return {str(name): dict(entry) for name, entry in entries.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}; delete it to start over") from error


def _known(folder: Path) -> dict[str, Any]:
    return trusted().get(str(folder.resolve()), {})


def _write(entries: Mapping[str, Any]) -> None:
    file = trust_file()
    try:
        with replace_file(file) as opened:
            opened.write(json.dumps({"folders": entries}, indent=1).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; set {ENVIRONMENT}") from error


# ---------------------------------------------------------------------- what Clew wrote itself


def sign(data: bytes) -> bytes:
    """A signature that only this user's Clew can make."""
    try:
        from _blake2 import blake2b  # hashlib's own: with hashlib comes OpenSSL, slow to load
    except ImportError:  # pragma: no cover - another Python
        from hashlib import blake2b
    return blake2b(data, key=_secret(user_folder()), digest_size=16).digest()


@cache
def _secret(folder: Path) -> bytes:
    """The user's, made when first asked for; of this process alone where it cannot be kept."""
    file = folder / "secret"

    def is_whole() -> bool:
        return file.exists() and file.stat().st_size == 32

    with suppress(OSError, ConfigError):
        if not is_whole():
            with _alone(folder):
                if not is_whole():  # else another process was quicker
                    with replace_file(file) as opened:
                        opened.write(os.urandom(32))
        return file.read_bytes()
    return os.urandom(32)


def _in_environment(folder: Path) -> bool:
    named = [path for path in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if path]
    here = folder.resolve()
    return any(Path(path).resolve() in (here, *here.parents) for path in named)


def _digest(content: bytes) -> str:
    from hashlib import sha256  # brings OpenSSL, which few searches need

    return sha256(content).hexdigest()
