"""A store in Qdrant: sharded and replicated collections, both legs on the server.

`meta` has what is not of one record: the head (journal.py), the change log, notes, files. `records`
has the truth, `words` and `vectors-…` what is searched, a point per passage.
"""

from __future__ import annotations

from pathlib import Path

from clew.servers.qdrant.client import Address, Server
from clew.servers.qdrant.journal import Journal
from clew.servers.qdrant.store import QdrantStore
from clew.storage import StoreLocation
from clew.storage.ownership import make_folder


def open_server(
    place: StoreLocation, *, folder: Path, create: bool, busy_seconds: float
) -> QdrantStore:
    """The store of this URL: qdrant://one:6333,two:6333/name?shards=6&replicas=2"""
    make_folder(folder)
    server = Server(Address.of(place.server), patience=busy_seconds)
    journal = Journal(server, busy_seconds=busy_seconds)
    try:
        journal.open(create=create)
    except BaseException:
        journal.close()
        raise
    return QdrantStore(journal, folder)
