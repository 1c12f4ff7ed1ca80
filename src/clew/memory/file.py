"""A memory's file while it is open: its store, its engine, and what makes its vectors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clew import config as settings
from clew.engine import Engine
from clew.errors import InputError, ModelError, StoreError, counted
from clew.memory.lifecycle import AccessCounter
from clew.memory.record import (
    Recalled,
    check_count,
    check_id,
    check_namespace,
    check_vector,
    find_records,
    unknown_id,
)
from clew.models import EXTERNAL, CurrentModel, NullEmbedder
from clew.protocols import Embedder, Store
from clew.sources import Configured
from clew.sources.store import all_words, keyword, vectors
from clew.sources.tokens import tokens
from clew.storage import is_url, locate
from clew.text import analyser
from clew.types import Record, Vector, Vectors
from clew.validate import unit

_DEFAULT_DIM = 384
_BESIDE = ".clew"
"""Ending of the folder beside the file that has the derived indexes."""


class MemoryFile:
    """What `Memory` stands on; nobody needs it alone."""

    def __init__(
        self,
        db_path: str | Path = "memory.db",
        embedding_dim: int = _DEFAULT_DIM,
        embedder: Any = None,
        *,
        max_memories: int = 100_000,
        create: bool = True,
        first_query: str | None = None,
        **overrides: Any,
    ):
        """`max_memories` is what `evict` keeps at most, `first_query` what will be asked next: it
        is embedded while the file is opened. Other names are settings of Clew."""
        embedding_dim = check_count("embedding_dim", embedding_dim)
        if not isinstance(db_path, (str, Path)):
            raise InputError(f"db_path is the path of a file, not {db_path!r:.100}")
        self.path, self._db_path = Path(db_path), db_path
        if is_url(db_path):
            self.path = locate(str(db_path), Path()).path
        self.max_memories = check_count("max_memories", max_memories)
        self._create, self._first_query = create, first_query
        self._embedder: Embedder | None = None
        if embedder is not None:
            self._embedder = as_embedder(embedder, dim=embedding_dim)
            with contextlib.suppress(ModelError):  # an API that cannot be asked now
                embedding_dim = self._embedder.dim or embedding_dim
        elif embedding_dim != _DEFAULT_DIM:
            overrides = {"model": "none", **overrides}
        self.embedding_dim = embedding_dim
        self._config = settings.load(None, overrides)
        self._is_open, self._opening = False, threading.Lock()
        self.open()

    def open(self) -> Self:
        """Again, after `close`."""
        with self._opening:
            if not self._is_open:
                self._open_engine()
                self._is_open = True
        return self

    def _open_engine(self) -> None:
        config, model = self._config, CurrentModel(self._config, self._embedder)
        if self._first_query:
            model.expect(self._first_query)
        self.store = _open_store(
            self._db_path,
            create=self._create,
            ivf_threshold=config.ivf_threshold,
            busy_seconds=config.busy_seconds,
            synchronous=config.synchronous,
        )
        if self._first_query:
            analyser.prepare()  # while the model loads
            self._first_query = None
        here = Path()
        sources = {
            "keyword": keyword(here),
            "all_words": all_words(here),
            "vectors": vectors(here),
            "tokens": tokens(here, least=0.0),  # what is too little, a call decides
        }
        configured = {name: Configured(source, kind=name) for name, source in sources.items()}
        self.engine = Engine(self.store, config=config, embedder=model, sources=configured)
        self._accesses = AccessCounter(self.store)

    def close(self) -> None:
        with self._opening:
            if self._is_open:
                self._is_open = False
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

    def _check_vector(self, given: Any) -> Vector | None:
        return None if given is None else check_vector(given, dim=self.embedding_dim)

    def _find(self, ids: Sequence[Any], namespace: str | None) -> list[Record]:
        wanted = None if namespace is None else check_namespace(namespace)
        return find_records(self.store, [check_id(each) for each in ids], wanted)

    def _find_one(self, id: str, namespace: str | None) -> Record:
        if not (found := self._find([id], namespace)):
            raise unknown_id(self.store, id, namespace)
        return found[0]

    def _recalled(self, records: Sequence[Record]) -> list[Recalled]:
        lives = self.store.lifecycle.get([record.id for record in records])
        return [Recalled.of(record, lives.get(record.id)) for record in records]


def _open_store(db_path: str | Path, *, create: bool, **options: Any) -> Store:
    """The store in this one file; its indexes are beside it and can be deleted at any time."""
    from clew import store as stores

    if is_url(db_path):
        return stores.open_store(str(db_path), base=Path(), create=create, **options)
    if str(db_path) == ":memory:":
        raise StoreError("a memory is a file, so that it lasts: give a path, in a temporary folder")
    path = Path(db_path).expanduser()
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name that cannot be one
        raise StoreError(f"{str(path)!r:.200} is no path of a file: {error}") from None
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder: give the file of the memory, such as {path}/memory.db"
        )
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it first, or check the path")
    if not create and not path.exists():
        raise StoreError(f"there is no memory in {path}: check the path, or remember something")
    beside = path.with_name(path.name + _BESIDE)
    return stores.EmbeddedStore(beside, database=path, create=create, **options)


def as_embedder(given: Any, *, dim: int) -> Embedder:
    """What callers have to make vectors with, as an embedder: one of ours, anything with its two
    methods (as LangChain's), with `encode` (as sentence-transformers'), or a function of a text."""
    if isinstance(given, NullEmbedder):
        return given
    documents, query, encode = (
        getattr(given, name, None) for name in ("embed_documents", "embed_query", "encode")
    )
    if callable(documents) and callable(query):
        return ForeignEmbedder(given, documents, query, dim)
    if callable(encode) and not isinstance(given, str):
        return ForeignEmbedder(given, lambda texts: encode(list(texts)), encode, dim)
    if callable(given):
        return ForeignEmbedder(given, lambda texts: [given(text) for text in texts], given, dim)
    raise InputError(
        f"embedder must be an embedder or a function from text to vector, not {given!r:.100}"
    )


@dataclass(eq=False, repr=False)
class ForeignEmbedder:
    """Anybody's code that makes vectors: what it gives is checked and brought to length 1, and
    whatever it raises is a ModelError, so that a memory is kept without a vector rather than lost.

    Vectors of another length than was said are the caller's mistake, and an InputError.
    """

    _of: Any
    _documents: Callable[[Sequence[str]], Any]
    _query: Callable[[str], Any]
    _dim: int

    @property
    def model(self) -> str:
        """Its own name for it, or else that of the function or class."""
        named = getattr(self._of, "model", None) or getattr(self._of, "model_name", None)
        if isinstance(named, str):
            return named
        name = getattr(self._of, "__qualname__", type(self._of).__qualname__)
        return f"function:{name}@{self.dim}"  # with another dimension it is another model

    @property
    def dim(self) -> int:
        """What it says itself, which may ask another machine, and fail; or what the caller said."""
        said = getattr(self._of, "dim", None)
        if callable(asked := getattr(self._of, "get_sentence_embedding_dimension", None)):
            said = asked()
        return said if isinstance(said, int) else self._dim

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return self._embed(lambda: self._documents(texts), len(texts))

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed(lambda: [self._query(text)], 1)[0]
        return row

    def _embed(self, embed: Callable[[], Any], count: int) -> Vectors:
        import numpy as np

        try:
            rows = np.asarray(embed(), np.float64)
        except ModelError:
            raise
        except Exception as error:  # a model on another machine, perhaps
            raise ModelError(f"{self.model} failed: {type(error).__name__}: {error}") from error
        if rows.ndim == 2 and rows.shape[1] != self.dim:
            raise InputError(
                f"{self.model} makes vectors of {rows.shape[1]} numbers, not {self.dim}: open the "
                f"memory with embedding_dim={rows.shape[1]}"
            )
        if rows.shape != (count, self.dim):
            raise ModelError(
                f"{self.model} gave vectors of shape {rows.shape} for {counted(count, 'text')}: "
                f"{(count, self.dim)} is expected"
            )
        if not np.isfinite(rows).all():
            raise ModelError(f"{self.model} gave a vector with NaN or infinity in it")
        return unit(rows)
