"""Copies a store into another in small steps, saying how far it is, until it is killed."""

import sys
from pathlib import Path

from clew.storage import locate, migrate
from clew.store import open_store

folder, source, target = Path(sys.argv[1]), *sys.argv[2:]
migrate.BATCH = 50
migrate.migrate(
    open_store(source, base=folder),
    open_store(target, base=folder),
    origin=locate(source, folder).url,
    progress=lambda stage, done, total: print(stage, done, total, flush=True),
)
