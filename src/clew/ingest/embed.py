"""The second pass of indexing: vectors for the chunks that have none of the current model.

Each batch is one short transaction, and nothing that is searched or written waits for it. Whatever
stops the run, the next one goes on from there, because what is missing is asked of the store.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clew.errors import ModelError
from clew.protocols import Embedder, Progress, Store

BATCH = 128
REFRESH_SECONDS = 10.0
LOCK = "embed.lock"


def embed_all(
    store: Store,
    embedder: Embedder,
    *,
    folder: Path | None,
    wait: bool,
    progress: Progress | None = None,
) -> int | None:
    """How many chunks got a vector, those that came in meanwhile included; None: another run is at
    it, and was not waited for."""
    if (kept := store.indexes.prepare(embedder.model)) not in (0, embedder.dim):
        raise ModelError(
            f"this store's vectors of {embedder.model} have {kept} dimensions, it now gives "
            f"{embedder.dim}: two models of one name; give the embedder a name of its own"
        )
    written = 0
    seen: set[int] = set()
    with _hold_lock(folder, wait=wait, progress=progress) as mine:
        if not mine:
            return None
        refreshed = time.monotonic()
        while pending := [cid for cid in store.vectors.pending(embedder.model) if cid not in seen]:
            done = len(seen)
            seen.update(pending)
            for i in range(0, len(pending), BATCH):
                some = pending[i : i + BATCH]
                written += _embed(store, embedder, some)
                if progress:
                    progress("embedding", done + i + len(some), len(seen))
                if time.monotonic() - refreshed > REFRESH_SECONDS:
                    store.indexes.refresh()
                    refreshed = time.monotonic()
    store.indexes.prepare(embedder.model)
    store.indexes.refresh(progress=progress, optimise=True)
    return written


@contextlib.contextmanager
def _hold_lock(folder: Path | None, *, wait: bool, progress: Progress | None) -> Iterator[bool]:
    """Whether this run is the only one, in any process, that embeds for the store in `folder`.

    Two at once would embed everything twice. The lock is the operating system's: it is free as soon
    as its holder ends, however that comes about.
    """
    import filelock

    if folder is None:
        yield True
        return
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        if not wait:
            yield False
            return
        if progress:
            progress("waiting", 0, 0)
        lock.acquire()
    except (OSError, NotImplementedError):  # a read-only disk: who has to write will be told
        yield True
        return
    try:
        yield True
    finally:
        lock.release()


def _embed(store: Store, embedder: Embedder, chunks: list[int]) -> int:
    known = store.vectors.known(chunks, model=embedder.model)
    fresh = [(cid, text) for cid, text in store.vectors.texts(chunks) if cid not in known]
    distinct = list(dict.fromkeys(text for _, text in fresh))
    rows = dict(zip(distinct, embedder.embed_documents(distinct), strict=True))
    vectors = known | {cid: rows[text] for cid, text in fresh}
    if not vectors:
        return 0
    together = np.stack(list(vectors.values()))
    return store.vectors.set(list(vectors), together, model=embedder.model)
