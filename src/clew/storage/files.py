"""The small tables beside the records: indexed folders, how their files were, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from clew.storage.batch import set_files
from clew.storage.tables import Database, plain
from clew.types import FileState


class SqlFileStates:
    """The folders that were indexed, and how their files were then."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def roots(self) -> dict[str, str]:
        return dict(self._db.reader.execute("SELECT collection, folder FROM roots").fetchall())

    def set_root(self, collection: str, folder: str) -> None:
        with self._db.transaction() as db:
            db.insert("roots", [(collection, folder)], replacing=1)

    def remove_root(self, collection: str) -> None:
        with self._db.transaction() as db:
            for table in ("roots", "files"):
                db.remove(table, ("collection",), [(collection,)])

    @plain
    def states(self, collection: str, paths: Sequence[str] | None = None) -> dict[str, FileState]:
        query = "SELECT path, size, mtime_ns, digest, indexed_ns FROM files WHERE "
        db = self._db.reader
        if paths is None:
            found = db.execute(query + "collection = ?", (collection,)).fetchall()
        else:
            found = db.among(query + "path IN ({}) AND collection = ?", paths, collection)
        return {path: FileState(*state) for path, *state in found}

    def set_states(self, collection: str, states: Mapping[str, FileState]) -> None:
        with self._db.transaction() as db:
            set_files(db, collection, states.items())


class SqlNotes(MutableMapping[str, str]):
    """What others wrote down, by name."""

    def __init__(self, db: Database):
        self._db = db

    @plain
    def __getitem__(self, key: str) -> str:
        query = "SELECT value FROM meta WHERE key = ?"
        row = self._db.reader.execute(query, (f"note:{key}",)).fetchone()
        if row is None:
            raise KeyError(key)
        return str(row[0])

    def __setitem__(self, key: str, value: str) -> None:
        with self._db.transaction() as db:
            db.insert("meta", [(f"note:{key}", value)], replacing=1)

    def __delitem__(self, key: str) -> None:
        with self._db.transaction() as db:
            db.remove("meta", ("key",), [(f"note:{key}",)])

    @plain
    def __iter__(self) -> Iterator[str]:
        query = "SELECT key FROM meta WHERE key LIKE 'note:%'"
        found = self._db.reader.execute(query).fetchall()
        return iter([row[0].removeprefix("note:") for row in found])

    def __len__(self) -> int:
        return len(list(iter(self)))
