"""Records in the tables of a database, whichever that is; the store over them is clew/store.py.

Here is where a store is: named by a URL; none means the embedded one of a folder.

duckdb:///notes.duckdb       one DuckDB file, from the folder on, or absolute after four slashes
embedded:///folder           the store in .clew/ of a folder
embedded:///memory.db        one file, as a memory has it
postgresql://host/database   tables of a Postgres server
qdrant://host:6333/name      collections of a Qdrant server or cluster
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from clew import config, trust
from clew.errors import ConfigError, StoreError

FOLDER = ".clew"


class StoreLocation(NamedTuple):
    """What a URL says, with the path as it is from here."""

    scheme: str
    path: Path
    """Of a store on a server: where what is derived from it is kept, if not in a folder's own."""
    server: str = ""
    """The URL of a store on a server, with its password; nothing: it is a file."""

    @property
    def whole(self) -> bool:
        """Whether it is the store of a folder, in its `.clew/`, and not one file."""
        folder = self.path.is_dir() or not (self.path.exists() or self.path.suffix)
        return self.scheme == "embedded" and folder

    @property
    def file(self) -> Path:
        """The database."""
        if self.server:
            raise StoreError(f"{self.name} is on a server, and no file")
        if self.whole:
            return self.path / FOLDER / "clew.db"
        return self.path

    @property
    def url(self) -> str:
        """The same, however it was written; with the password of a server."""
        return self.server or f"{self.scheme}:///{self.path.absolute()}"

    @property
    def name(self) -> str:
        """What may be shown."""
        return trust.hide_password(self.server) if self.server else str(self.file)

    @property
    def identity(self) -> str:
        """What two places have in common that are the same store, by whichever way."""
        if not self.server:
            return f"{self.scheme}:///{self.file.resolve()}"
        parts = urlsplit(self.server)
        named = [pair for pair in parse_qsl(parts.query) if pair[0] in _NAMING]
        host = parts.netloc.rpartition("@")[2].lower()
        return f"{self.scheme}://{host}{parts.path.rstrip('/')}?{urlencode(sorted(named))}"

    def exists(self) -> bool:
        """Whether there is a file; a server is asked when the store is opened."""
        return bool(self.server) or self.file.exists()

    def same_as(self, other: StoreLocation) -> bool:
        """Also by a link, or written in another way."""
        if self.server or other.server:
            return self.identity == other.identity
        return same_file(self.file, other.file)


_NAMING = ("dbname", "host", "port", "schema")
"""Parameters of a URL that say which store is meant; others say how to get there."""


def is_url(given: object) -> bool:
    return isinstance(given, str) and "://" in given


def locate(url: str, base: Path) -> StoreLocation:
    """Where it is; relative to `base`. Where that has no such folder but the disk has, the path is
    taken from its root: `duckdb:///tmp/x.duckdb` is what many write for an absolute one."""
    if not url:
        return StoreLocation("embedded", base)
    config.check_url(url)
    scheme, _, rest = url.partition("://")
    if scheme in config.SERVERS:
        return _locate_server(scheme, url)
    given = Path(rest[1:]).expanduser()
    path, root = base / given, Path(rest)
    if not given.is_absolute() and not path.parent.is_dir() and len(root.parts) > 2:
        path = root if root.parent.is_dir() else path
    return StoreLocation(
        scheme, path.parent if scheme == "embedded" and path.name == FOLDER else path
    )


def _locate_server(scheme: str, url: str) -> StoreLocation:
    """One of a memory has no folder of its own: what is derived from it goes to the user's."""
    from hashlib import sha256

    place = StoreLocation(scheme, Path(), url)
    name = sha256(place.identity.encode()).hexdigest()[:16]
    return place._replace(path=trust.cache_folder("stores") / name)


def has_store(folder: Path) -> bool:
    """Whether a folder has a store, in `.clew/` or where its settings say. One on a server may have
    been filled from elsewhere: that they name it will do."""
    if (folder / FOLDER / "clew.db").exists():
        return True
    own = (folder / FOLDER).is_dir()
    if not own and not (folder / config.FILE_NAME).is_file():
        return False
    with contextlib.suppress(ConfigError):  # said when the store is opened
        url = config.load(folder).store
        place = locate(url, folder)
        return bool(url) and (own or bool(place.server)) and place.exists()
    return False


def same_file(one: Path, other: Path) -> bool:
    """Also by a link, or written in another way."""
    if one.resolve() == other.resolve():
        return True
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return False


def home_of(place: StoreLocation, near: Path | None = None) -> Path | None:
    """The folder whose store this is, from which it tells where indexed folders are: that around
    it, or `near`, if its settings say so. None: a store that belongs to no folder."""
    if place.whole:
        return place.path
    parent = place.path.absolute().parent
    around = None if place.server else parent.parent if parent.name == FOLDER else parent
    for folder in (near, around):
        with contextlib.suppress(ConfigError):
            url = "" if folder is None else config.load(folder).store
            if folder is not None and url and locate(url, folder).same_as(place):
                return folder
    return None
