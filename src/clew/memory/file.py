"""A memory's file while it is open: its engine, its model, and memories looked up by their id."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from clew import config as settings
from clew.engine import Engine
from clew.errors import InputError, ModelError
from clew.memory import given
from clew.memory.accesses import Accesses
from clew.memory.identity import find, unknown
from clew.memory.opening import as_embedder, open_store, path_of
from clew.memory.results import Recalled
from clew.models.current import EXTERNAL, CurrentModel
from clew.protocols import Embedder
from clew.sources.configure import Configured
from clew.sources.keyword import all_words, keyword, vectors
from clew.sources.tokens import tokens
from clew.text import analyser
from clew.types import Record

__all__ = ["MemoryFile"]

DIM = 384


class MemoryFile:
    """What `Memory` stands on; nobody needs it alone."""

    def __init__(
        self,
        db_path: str | Path = "memory.db",
        embedding_dim: int = DIM,
        embedder: Any = None,
        *,
        max_memories: int = 100_000,
        create: bool = True,
        first_query: str | None = None,
        **overrides: Any,
    ):
        """`max_memories` is what `evict` keeps at most, `first_query` what will be asked next: it
        is embedded while the file is opened. Other names are settings of Clew."""
        embedding_dim = given.check_count("embedding_dim", embedding_dim)
        if not isinstance(db_path, (str, Path)):
            raise InputError(f"db_path is the path of a file, not {db_path!r:.100}")
        self.path, self._place = path_of(db_path), db_path
        self.max_memories = given.check_count("max_memories", max_memories)
        self._create, self._first_query = create, first_query
        self._embedder: Embedder | None = None
        if embedder is not None:
            self._embedder = as_embedder(embedder, dim=embedding_dim)
            with contextlib.suppress(ModelError):  # an API that cannot be asked now
                embedding_dim = self._embedder.dim or embedding_dim
        elif embedding_dim != DIM:
            overrides = {"model": "none", **overrides}
        self.embedding_dim = embedding_dim
        self._config = settings.load(None, overrides)
        self._open, self._opening = False, threading.Lock()
        self.open()

    # ------------------------------------------------------------------ opening

    def open(self) -> Self:
        """Again, after `close`."""
        with self._opening:
            if not self._open:
                self._open_file()
                self._open = True
        return self

    def _open_file(self) -> None:
        config, model = self._config, CurrentModel(self._config, self._embedder)
        if self._first_query:
            model.expect(self._first_query)
        store = open_store(
            self._place,
            create=self._create,
            ivf_threshold=config.ivf_threshold,
            busy_seconds=config.busy_seconds,
            synchronous=config.synchronous,
        )
        if self._first_query:
            analyser.prepare()  # while the model loads
            self._first_query = None
        here = Path()
        legs = {
            "keyword": keyword(here),
            "all_words": all_words(here),
            "vectors": vectors(here),
            "tokens": tokens(here, least=0.0),  # what is too little, a call decides
        }
        self.engine = Engine(
            store,
            config=config,
            embedder=model,
            sources={name: Configured(source, kind=name) for name, source in legs.items()},
        )
        self.store = store
        self._accesses = Accesses(store)

    def close(self) -> None:
        with self._opening:
            if self._open:
                self._open = False
                self._accesses.close()
                self.engine.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> str:
        """The model whose vectors are made here."""
        return self.engine.model

    @property
    def _given_model(self) -> str:
        """The model of vectors that callers give."""
        return EXTERNAL if self._embedder is None else self._embedder.model

    # ------------------------------------------------------------------ looking up

    def _known(self, ids: Sequence[Any], namespace: str | None) -> list[Record]:
        """Those that there are, of this namespace if one is named."""
        wanted = None if namespace is None else given.check_namespace(namespace)
        return find(self.store, [given.check_id(each) for each in ids], wanted)

    def _record(self, id: str, namespace: str | None) -> Record:
        if not (found := self._known([id], namespace)):
            raise unknown(self.store, id, namespace)
        return found[0]

    def _recalled(self, records: Sequence[Record]) -> list[Recalled]:
        lives = self.store.lives([record.id for record in records])
        return [Recalled.of(record, lives.get(record.id)) for record in records]
