"""What was extracted, kept from one build to the next, so that only what changed is read again.

One SQLite file beside the built graph. It is no truth: deleted, it is made anew from the records.
Answers of a chat model cost money, so they have a file of their own outside the derived indexes.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from clew.errors import StoreError
from clew.graph.extract import Extract, RecordExtract


class _File:
    """One SQLite file that may be lost: one that cannot be read is begun anew."""

    SCHEMA = ""

    def __init__(self, file: Path):
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._open()
        except sqlite3.OperationalError as error:  # locked, no room, no right: it may be sound
            raise StoreError(
                f"{file} cannot be opened: {error}; try again, and see whether the disk is full"
            ) from error
        except sqlite3.DatabaseError:
            for name in (file, file.with_name(f"{file.name}-journal")):
                name.unlink(missing_ok=True)
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA synchronous = OFF")
            if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("damaged")
            db.executescript(self.SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """All of the block or nothing of it."""
        try:
            self._db.execute("BEGIN")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise StoreError(
                f"{self.file} cannot be written: {error}; is the disk full? Free some space and "
                "run `clew graph build` again"
            ) from error

    def close(self) -> None:
        self._db.close()


class Extracts(_File):
    """By record."""

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS extracts (
            id TEXT PRIMARY KEY, digest TEXT NOT NULL, title TEXT NOT NULL, path TEXT,
            data TEXT NOT NULL) WITHOUT ROWID;
    """

    @staticmethod
    def known(file: Path) -> dict[str, str]:
        """The digests in a file, which is not touched; none where it cannot be read."""
        with contextlib.suppress(sqlite3.Error):
            uri = f"{file.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
                return dict(db.execute("SELECT id, digest FROM extracts"))
        return {}

    def digests(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT id, digest FROM extracts"))

    def fingerprint(self) -> str:
        """Of all there is: a graph made from the same is the same."""
        whole = blake2b(digest_size=16)
        for row in self._db.execute("SELECT id, digest FROM extracts ORDER BY id"):
            whole.update(json.dumps(row).encode("utf-8", "surrogatepass"))
        return whole.hexdigest()

    def put(self, rows: Iterable[tuple[str, str, str, str | None, str]]) -> None:
        """(id, digest, title, path, extract as JSON)"""
        self._db.executemany("INSERT OR REPLACE INTO extracts VALUES (?, ?, ?, ?, ?)", rows)

    def remove(self, ids: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM extracts WHERE id = ?", ((name,) for name in ids))

    def all(self) -> Iterator[RecordExtract]:
        """By id, so that nothing depends on the order of edits."""
        query = "SELECT id, title, path, data, digest FROM extracts ORDER BY id"
        for name, title, path, data, digest in self._db.execute(query):
            yield RecordExtract(name, title, path, Extract.from_json(data), digest)


class Answers(_File):
    """What a chat model said, by a digest of what it was asked."""

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS answers (
            digest TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID;
    """

    def get(self, digest: str) -> str | None:
        row = self._db.execute("SELECT answer FROM answers WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, digest: str, answer: str) -> None:
        with self.writing():
            self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (digest, answer))

    def keep(self, digests: Collection[str]) -> int:
        """Nothing but these; how many went."""
        known = {row[0] for row in self._db.execute("SELECT digest FROM answers")}
        gone = known.difference(digests)
        with self.writing():
            self._db.executemany("DELETE FROM answers WHERE digest = ?", ((d,) for d in gone))
        return len(gone)
