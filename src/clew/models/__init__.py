"""Models: embedders, rerankers, what is known of each without loading it, and the one in use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from clew.background import Recent, begin, within
from clew.config import AUTO_API, Config, check_model, check_task
from clew.config import load as load_settings
from clew.errors import InputError, ModelError, counted
from clew.models import catalogue, hub, providers
from clew.models.catalogue import CatalogueModel
from clew.protocols import Embedder, LateInteraction, Progress, Reranker
from clew.types import Vector, Vectors
from clew.validate import encodable, guarded, unit

DEFAULT_MODEL = "bge-small"
EXTERNAL = "external"
"""The model name of vectors that came from outside, where the store has no embedder of its own."""
_QUERIES_KEPT = 1024
"""Queries whose vectors are kept."""
LEAST_COSINE = 0.5
"""What a text has in common with a query at least, where nothing is known of the model."""
UNRELATED = 0.3
"""The cosine of unrelated texts where the model is not in the catalogue."""
CHARACTERS = 4
"""Of a token, about."""
_BLAS = "OPENBLAS_NUM_THREADS"


@guarded
class NullEmbeddingProvider:
    """Stands where an embedder would: Clew then finds by words alone. `reason` says why there is
    none and what to do about it."""

    model = "none"
    dim = 0

    def __init__(
        self, reason: str = "no embedding model is configured: set `model` to bge-small"
    ) -> None:
        self.reason = reason

    def embed_documents(self, texts: Sequence[str]) -> NoReturn:
        raise ModelError(self.reason)

    def embed_query(self, text: str) -> NoReturn:
        raise ModelError(self.reason)

    def __repr__(self) -> str:
        return f"NullEmbeddingProvider({self.reason!r})"


def default_embedder(config: Config | None = None) -> Embedder:
    """The embedder for whoever does not name one: that of the settings, if it can embed here.

    Otherwise a NullEmbeddingProvider comes back, whose `reason` says what to do. Nothing is fetched
    and nothing is sent yet. A key in the environment alone sends nothing anywhere: texts go to an
    API only where `model` names one, or is `auto-api`.
    """
    config = config or load_settings()
    missing = why_missing(config.model, base_url=config.model_url or None)
    if missing is None:
        return load_configured(config)
    if is_local(config.model) and config.model != "none":
        missing = f"the weights of {resolve(config.model)!r} are not on this machine: {missing}"
        if config.model != AUTO_API and any(map(providers.find_key, providers.PROVIDERS)):
            missing += f", or set `model` to {AUTO_API}, which sends texts to the API of your key"
    return NullEmbeddingProvider(missing)


def load_configured(config: Config, **options: Any) -> Embedder:
    """The embedder of the settings. `options` are `offline`, `progress` and `brief`: see
    `load_embedder`."""
    threads, provider = config.threads or None, resolve(config.model).partition(":")[0]
    if config.model_url and provider in providers.PROVIDERS:
        options["api_key"] = providers.find_key(provider, config.model_url, config.keys)
    options = {"device": config.device, **_api_options(config), **options}
    return load_embedder(config.model, threads=threads, **options)


def configured_name(config: Config) -> str:
    """What `load_configured(config).model` will say, without loading anything."""
    return model_name(config.model, **_api_options(config))


def _api_options(config: Config) -> dict[str, Any]:
    return {
        "base_url": config.model_url or None,
        "document_prefix": config.model_document_prefix,
        "query_prefix": config.model_query_prefix,
    }


def load_embedder(
    spec: str = DEFAULT_MODEL,
    *,
    threads: int | None = None,
    offline: bool = True,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    dim: int | None = None,
    document_prefix: str = "",
    query_prefix: str = "",
    brief: bool = False,
    device: str = "auto",
) -> Embedder:
    """The embedder that `spec` names: a model of the catalogue, `hf:OWNER/NAME`, `openai:NAME`,
    `gemini:NAME`, `auto-api` or `none`.

    A catalogue model whose weights are not here is fetched unless `offline`; if it cannot be, a
    NullEmbeddingProvider comes back that gives the reason, because search by words still works.
    `base_url`, `api_key`, `dim` and the prefixes are for APIs only, `folder` is as for `pull`;
    `brief` says that the process will embed one query and end. `device` is as in the settings.
    """
    # What embeds is imported late: a search that embeds nothing should pay for none of it.
    spec = resolve(spec)
    if spec == "none":
        return NullEmbeddingProvider()
    served = providers.find_api_model(
        spec,
        base_url=base_url,
        dim=dim,
        document_prefix=document_prefix,
        query_prefix=query_prefix,
    )
    if served is not None:
        from clew.models.api import ApiEmbedder

        return ApiEmbedder(served, base_url=base_url, api_key=api_key)
    check_model(spec)
    if _find_weights(spec) is None:
        if offline:
            return NullEmbeddingProvider(_not_here(spec))
        from clew.models.download import pull

        try:
            pull(spec, folder=folder, progress=progress)
        except ModelError as error:
            return NullEmbeddingProvider(str(error))
    return load_entry(catalogue.find_model(spec), threads=threads, brief=brief, device=device)


def load_entry(
    model: CatalogueModel, *, threads: int | None = None, brief: bool = False, device: str = "auto"
) -> Embedder:
    """The embedder of a model whose weights are here."""
    if hub.is_hub(model.id):
        from clew.models.download import verify

        if not verify(model):
            raise ModelError(
                f"the files of {model.id} are not those of its first pull: `clew models remove "
                f"{model.id}`, then `clew models pull {model.id}` (--renew takes them as they are)"
            )
    if catalogue.TORCH_FILE in {file.name for file in model.files}:
        from clew.models.pytorch import TorchEmbedder

        return TorchEmbedder(model, model.folder, device=device)
    # NumPy would start a second thread, which one query has no use for and which spins for a while.
    alone = brief and _BLAS not in os.environ
    if alone:
        os.environ[_BLAS] = "1"
    from clew.models.onnx import OnnxEmbedder

    if alone:
        del os.environ[_BLAS]
    return OnnxEmbedder(model, model.folder, threads=threads, brief=brief, device=device)


def _find_weights(spec: str) -> Path | None:
    if hub.is_hub(spec) and hub.read_entry(spec) is None:
        return None
    return catalogue.model_path(spec)


def load_reranker(spec: str, *, threads: int | None = None, device: str = "auto") -> Reranker:
    """The cross-encoder that `spec` names; a ModelError says what to do if it is not here."""
    check_task("rerank", spec)
    weights = catalogue.model_path(spec)
    if weights is None:
        raise ModelError(_not_here(spec))
    from clew.models.onnx import OnnxReranker

    return OnnxReranker(catalogue.find_model(spec), weights, threads=threads, device=device)


def load_late_interaction(
    spec: str,
    *,
    threads: int | None = None,
    offline: bool = True,
    progress: Progress | None = None,
    device: str = "auto",
) -> LateInteraction:
    """The model of late interaction that `spec` names, fetched unless `offline`; a ModelError says
    what to do if it is not here."""
    check_task("late-interaction", spec)
    weights = catalogue.model_path(spec)
    if weights is None and offline:
        raise ModelError(_not_here(spec))
    if weights is None:
        from clew.models.download import pull

        weights = pull(spec, progress=progress)
    from clew.models.late_interaction import OnnxLateInteraction

    model = catalogue.find_model(spec)
    return OnnxLateInteraction(model, weights, threads=threads, device=device)


def _not_here(spec: str) -> str:
    return f"the weights of {spec!r} are not on this machine: run `clew models pull {spec}`"


def resolve(spec: str) -> str:
    """What `auto-api` stands for on this machine now, or a provider without a model's name;
    everything else is itself."""
    known = providers.PROVIDERS
    if spec == AUTO_API:
        # Gemini before OpenAI, where there are keys of both.
        keyed = [provider for provider in sorted(known) if providers.find_key(provider)]
        spec = DEFAULT_MODEL if catalogue.model_path(DEFAULT_MODEL) or not keyed else keyed[0]
    return f"{spec}:{known[spec].model}" if spec in known else spec


def is_local(spec: str) -> bool:
    """Whether it runs in this process, as far as it runs at all."""
    return providers.find_api_model(resolve(spec)) is None


def model_name(spec: str, **options: Any) -> str:
    """What `load_embedder(spec).model` will say, without loading anything. `options` are those of
    `find_api_model`."""
    spec = resolve(spec)
    if spec == "none":
        return spec
    served = providers.find_api_model(spec, **options)
    if served is not None:
        return served.identity
    unknown = hub.is_hub(spec) and hub.read_entry(spec) is None
    return spec if unknown else catalogue.find_model(spec).identity


class Traits(NamedTuple):
    """What fusion wants to know of a model."""

    unrelated: float = UNRELATED
    """The cosine of texts that have nothing to do with each other."""
    scripts: tuple[str, ...] = ()
    """Those it knows; none named: all."""
    window: int = 0
    """About how many characters of a text it reads; 0: all, as far as is known."""
    gauged: bool = False
    """Whether `unrelated` was measured, and is no guess."""


@cache
def traits(model: str) -> Traits:
    """A name may be without what says which weights, dimension or roles it is."""
    bare = _bare(model)
    known = hub.read_entry(bare) if hub.is_hub(bare) else catalogue.catalogue().get(bare)
    if known is not None:
        return Traits(known.least_cosine, known.scripts, CHARACTERS * known.max_tokens, True)
    served = providers.find_api_model(model.partition("#")[0])
    return Traits(window=CHARACTERS * served.card.tokens) if served else Traits()


def least_cosine(model: str, given: Mapping[str, float] | None = None) -> float:
    """The cosine below which this model's texts have nothing to do with each other: what is
    `given` for it, what the catalogue knows, or else `LEAST_COSINE`."""
    for name in (model, _bare(model)):
        if given and name in given:
            return given[name]
    known = traits(model)
    return known.unrelated if known.gauged else LEAST_COSINE


def _bare(model: str) -> str:
    return model.partition("#")[0].partition("@")[0]


def why_missing(spec: str, *, base_url: str | None = None) -> str | None:
    """Why `spec` cannot embed on this machine right now; None: it can, as far as is known here."""
    name = resolve(spec)
    if name == "none":
        return NullEmbeddingProvider().reason
    if (served := providers.find_api_model(name)) is not None:
        from importlib.util import find_spec

        _, own = providers.find_address(served.provider, base_url)
        if not own and providers.find_key(served.provider) is None:
            keys = providers.PROVIDERS[served.provider].keys
            return providers.needs_key(name, keys, "model_url")
        return None if find_spec("openai") is not None else providers.NO_CLIENT
    if _find_weights(name):
        return None
    fetch = f"run `clew models pull {name}`"
    if spec == AUTO_API:
        keys = tuple(key for provider in providers.PROVIDERS.values() for key in provider.keys)
        fetch += f", or set {' or '.join(keys)}"
    return fetch


# ---------------------------------------------------------------- anybody's code


def as_embedder(given: Any, *, dim: int) -> Embedder:
    """What callers have to make vectors with, as an embedder: one of ours, anything with its two
    methods (as LangChain's), with `encode` (as sentence-transformers'), or a function of a text."""
    if isinstance(given, NullEmbeddingProvider):
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


class ForeignEmbedder:
    """Anybody's code that makes vectors: what it gives is checked and brought to length 1, and
    whatever it raises is a ModelError, so that a memory is kept without a vector rather than lost.

    Vectors of another length than was said are the caller's mistake, and an InputError.
    """

    def __init__(
        self,
        of: Any,
        documents: Callable[[Sequence[str]], Any],
        query: Callable[[str], Any],
        dim: int,
    ):
        self._of, self._documents, self._query, self._dim = of, documents, query, dim

    @property
    def model(self) -> str:
        """The name that the code gives it, or else that of the function or class."""
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


# ---------------------------------------------------------------- the model in use


class CurrentModel:
    """The embedder of the settings, or the one given in its place. Thread-safe."""

    def __init__(self, config: Config, embedder: Embedder | None = None):
        self._config = config
        self._embedder = embedder
        self.given = embedder is not None
        self._lock = threading.Lock()
        self._expected: dict[str, Callable[[], Vector]] = {}
        self._kept: Recent[tuple[str, str], Vector] = Recent(_QUERIES_KEPT)

    def load(self, *, pull: bool = False, progress: Progress | None = None) -> Embedder:
        """A NullEmbeddingProvider where its weights are not here (and `pull` cannot fetch them)."""
        with self._lock:
            if self._embedder is None or (pull and not self._embedder.dim):
                self._embedder = load_configured(self._config, offline=not pull, progress=progress)
            return self._embedder

    @property
    def name(self) -> str:
        """The name under which this model's vectors are kept, without loading any weights."""
        if self._embedder is not None and self._can_embed:
            return self._embedder.model
        if self._config.model == "none":
            return EXTERNAL
        # also where its weights are missing: the vectors may be there
        return configured_name(self._config)

    @property
    def why_missing(self) -> str | None:
        """Why it cannot embed on this machine right now; None: it can."""
        if self._embedder is not None and self._can_embed and self.local:
            return None
        return why_missing(self._config.model, base_url=self._config.model_url or None)

    @property
    def local(self) -> bool:
        return self.given or is_local(self._config.model)

    @property
    def unwanted(self) -> bool:
        """Whether the settings ask for no model at all: then nothing will ever be embedded."""
        return not self.given and self._config.model == "none"

    @property
    def _can_embed(self) -> bool:
        """An API counts without being asked: whoever embeds will be told why it cannot."""
        if self._embedder is None or isinstance(self._embedder, NullEmbeddingProvider):
            return False
        try:
            return not self.local or self._embedder.dim > 0
        except ModelError:
            return True

    def expect(self, text: str) -> None:
        """Embed it in the background, for a process that asks one thing and ends."""
        text = encodable(text)
        if self._embedder is None:
            sys.setswitchinterval(1e-3)  # opening a model waits for the interpreter time and again
            self._embedder = load_configured(self._config, brief=True)
            if self._can_embed:
                self._expected[text] = begin(partial(self._embedder.embed_query, text))

    def knows(self, text: str) -> bool:
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
        if (kept := self._kept.use(key)) is not None:
            return kept
        with self._lock:
            begun = self._expected.pop(text, None)
        vector = begun() if begun is not None else embedder.embed_query(text)
        self._kept.keep(key, vector)
        return vector
