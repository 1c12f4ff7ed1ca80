"""The model a store uses: loaded when it is first needed, with the last queries' vectors kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from clew import models
from clew.background import begin, within
from clew.config import Config
from clew.errors import ModelError
from clew.protocols import Embedder, Progress
from clew.types import Vector
from clew.validate import encodable

EXTERNAL = "external"
"""The model name of vectors that came from outside, where the store has no embedder of its own."""
KEPT = 1024
"""Queries whose vectors are kept."""


class CurrentModel:
    """The embedder of the settings, or the one given in its place. Thread-safe."""

    def __init__(self, config: Config, embedder: Embedder | None = None):
        self._config = config
        self._embedder = embedder
        self.given = embedder is not None
        self._lock = threading.Lock()
        self._expected: dict[str, Callable[[], Vector]] = {}
        self._kept: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def load(self, *, pull: bool = False, progress: Progress | None = None) -> Embedder:
        """A NullEmbedder when its weights are not here (and, with `pull`, cannot be fetched)."""
        with self._lock:
            if self._embedder is None or (pull and not self._embedder.dim):
                self._embedder = self._load(pull=pull, progress=progress)
            return self._embedder

    def _load(
        self, *, pull: bool = False, brief: bool = False, progress: Progress | None = None
    ) -> Embedder:
        return models.load_configured(
            self._config, offline=not pull, progress=progress, brief=brief
        )

    @property
    def name(self) -> str:
        """The name under which this model's vectors are kept, without loading any weights."""
        if self._embedder is not None and self._can_embed:
            return self._embedder.model
        if self._config.model == "none":
            return EXTERNAL
        # also where its weights are missing: the vectors may be there
        return models.configured_name(self._config)

    @property
    def why_missing(self) -> str | None:
        """Why it cannot embed on this machine right now; None: it can."""
        if self._embedder is not None and self._can_embed and self.local:
            return None
        return models.why_missing(self._config.model, base_url=self._config.model_url or None)

    @property
    def local(self) -> bool:
        """Whether it runs in this process."""
        return self.given or models.is_local(self._config.model)

    @property
    def _can_embed(self) -> bool:
        """An API counts without being asked: whoever embeds will be told why it cannot."""
        if self._embedder is None or isinstance(self._embedder, models.NullEmbedder):
            return False
        try:
            return not self.local or self._embedder.dim > 0
        except ModelError:
            return True

    def expect(self, text: str) -> None:
        """For a process that asks one thing and ends: embed it in the background."""
        text = encodable(text)
        if self._embedder is None:
            self._embedder = self._load(brief=True)
            if self._can_embed:
                self._expected[text] = begin(partial(self._embedder.embed_query, text))

    def knows(self, text: str) -> bool:
        """Whether this query's vector is among those kept."""
        return (self.name, text) in self._kept

    def embed_query(self, text: str, *, seconds: float | None = None) -> Vector:
        """The query's vector; the last ones are kept. A ModelError where it takes longer than
        `seconds`: then it goes on by itself, and may be there the next time."""
        if seconds is not None and not self.knows(text):
            try:
                return within(seconds, partial(self.embed_query, text))
            except TimeoutError:
                why = f"no vector of the query within {seconds:.3g} s: raise `deadline`"
                raise ModelError(why) from None
        embedder, text = self.load(), encodable(text)
        key = (embedder.model, text)
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
            begun = self._expected.pop(text, None)
        vector = begun() if begun is not None else embedder.embed_query(text)
        with self._lock:
            self._kept[key] = vector
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return vector
