"""What a DuckDB file holds, and how an older one becomes a newer one.

Lists where SQLite needs tables: a record's tags and links are in its row. No unique keys but those
of small tables: DuckDB checks them slowly, and numbers are given under a lock anyway. The views
have the names that embedded/ reads, and are there for whoever opens the file with DuckDB itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clew.storage.duckdb.connection import Connection

__all__ = ["MIGRATIONS"]


def _first(db: Connection) -> None:
    for statement in _FIRST.split(";"):
        if statement.strip():
            db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('store', ?)", (uuid.uuid4().hex,))


_FIRST = """
    CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);
    CREATE TABLE counters (name VARCHAR PRIMARY KEY, last BIGINT NOT NULL);
    INSERT INTO counters VALUES ('rid', 0), ('cid', 0);

    CREATE TABLE records (
        rid BIGINT NOT NULL,
        id VARCHAR NOT NULL,
        collection VARCHAR NOT NULL,
        type VARCHAR NOT NULL,
        domain VARCHAR NOT NULL,
        title VARCHAR NOT NULL,
        path VARCHAR,
        importance DOUBLE NOT NULL,
        created_at DOUBLE NOT NULL,
        updated_at DOUBLE NOT NULL,
        metadata VARCHAR NOT NULL,
        ended_at DOUBLE,
        tags VARCHAR[] NOT NULL,
        links VARCHAR[] NOT NULL,
        content VARCHAR NOT NULL
    );
    CREATE INDEX records_rid ON records (rid);
    CREATE INDEX records_id ON records (id);

    CREATE TABLE chunks (
        cid BIGINT NOT NULL,
        rid BIGINT NOT NULL,
        "start" BIGINT NOT NULL,
        "end" BIGINT NOT NULL,
        first_line BIGINT NOT NULL,
        last_line BIGINT NOT NULL,
        heading VARCHAR NOT NULL,
        digest BLOB NOT NULL
    );
    CREATE INDEX chunks_cid ON chunks (cid);
    CREATE INDEX chunks_rid ON chunks (rid);

    CREATE TABLE vectors (
        cid BIGINT NOT NULL,
        embedding_model VARCHAR NOT NULL,
        embedding_dim INTEGER NOT NULL,
        embedding FLOAT[] NOT NULL
    );

    CREATE TABLE labels (kind VARCHAR NOT NULL, label VARCHAR NOT NULL, rid BIGINT NOT NULL);
    -- A value is text or a number. Of a whole one both are kept: a DOUBLE may round it.
    CREATE TABLE attributes (
        rid BIGINT NOT NULL, key VARCHAR NOT NULL, text VARCHAR, number DOUBLE, whole BIGINT
    );

    CREATE TABLE roots (collection VARCHAR PRIMARY KEY, folder VARCHAR NOT NULL);
    CREATE TABLE files (
        collection VARCHAR NOT NULL, path VARCHAR NOT NULL,
        size BIGINT NOT NULL, mtime_ns BIGINT NOT NULL,
        digest VARCHAR NOT NULL, indexed_ns BIGINT NOT NULL,
        PRIMARY KEY (collection, path)
    );

    CREATE TABLE lives (
        rid BIGINT NOT NULL,
        accesses BIGINT NOT NULL,
        strength DOUBLE NOT NULL,
        accessed_at DOUBLE,
        useful BIGINT NOT NULL,
        useless BIGINT NOT NULL,
        reason VARCHAR NOT NULL,
        successor VARCHAR
    );

    CREATE TABLE changes (
        seq BIGINT NOT NULL, kind VARCHAR NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
        token BIGINT NOT NULL
    );

    CREATE VIEW texts AS SELECT rid, content FROM records;
    CREATE VIEW tags AS SELECT label AS tag, rid FROM labels WHERE kind = 'tag';
    CREATE VIEW links AS SELECT rid, unnest(links) AS target FROM records
"""


def _validity(db: Connection) -> None:
    """When what a record says is true, apart from when it was written."""
    for name in ("valid_from", "valid_to"):
        db.execute(f"ALTER TABLE records ADD COLUMN {name} DOUBLE")


MIGRATIONS: list[Callable[[Connection], None]] = [_first, _validity]
"""Each takes a store from its number to the next; never change one that was released."""
