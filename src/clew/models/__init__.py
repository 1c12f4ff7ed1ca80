"""Models: embedders, rerankers, and where their weights come from.

The commands `clew models …` are catalogue.py and pull.py; the engine needs `load_embedder` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clew.errors import ConfigError, ModelError, nearest
from clew.models.null import NullEmbedder, NullEmbeddingProvider
from clew.protocols import Embedder, Progress, Reranker

if TYPE_CHECKING:
    from clew.config import Config

__all__ = [
    "AUTO_API",
    "DEFAULT_MODEL",
    "NullEmbedder",
    "NullEmbeddingProvider",
    "check_model",
    "check_reranker",
    "configured_name",
    "default_embedder",
    "is_local",
    "least_cosine",
    "load_configured",
    "load_embedder",
    "load_reranker",
    "model_name",
    "resolve",
    "traits",
    "why_missing",
]

DEFAULT_MODEL = "bge-small"
AUTO_API = "auto-api"
"""The bundled model, or an API whose key is in the environment: the one setting by which a key
makes Clew send texts away."""
LEAST_COSINE = 0.5
"""What a text has in common with a query at least, where nothing is known of the model."""
UNRELATED = 0.3
"""The cosine of unrelated texts where the model is not in the catalogue."""
CHARACTERS = 4
"""Of a token, about."""


def default_embedder(config: Config | None = None) -> Embedder:
    """The embedder for whoever does not name one: that of the settings, if it can embed here.

    Otherwise a NullEmbeddingProvider comes back, whose `reason` says what to do. Nothing is fetched
    and nothing is sent yet. A key in the environment alone sends nothing anywhere: texts go to an
    API only where `model` names one, or is `auto-api`.
    """
    if config is None:
        from clew import config as settings

        config = settings.load()
    missing = why_missing(config.model, base_url=config.model_url or None)
    if missing is None:
        return load_configured(config)
    if is_local(config.model) and config.model != "none":
        missing = f"the weights of {resolve(config.model)!r} are not on this machine: {missing}"
        from clew.models.apis import PROVIDERS, key_of

        if config.model != AUTO_API and any(map(key_of, PROVIDERS)):
            missing += f", or set `model` to {AUTO_API}, which sends texts to the API of your key"
    return NullEmbeddingProvider(missing)


def load_configured(
    config: Config,
    *,
    offline: bool = True,
    progress: Progress | None = None,
    brief: bool = False,
) -> Embedder:
    """The embedder of the settings: see `load_embedder`."""
    return load_embedder(
        config.model,
        threads=config.threads or None,
        offline=offline,
        progress=progress,
        base_url=config.model_url or None,
        document_prefix=config.model_document_prefix,
        query_prefix=config.model_query_prefix,
        brief=brief,
    )


def configured_name(config: Config) -> str:
    """What `load_configured(config).model` will say, without loading anything."""
    return model_name(
        config.model,
        base_url=config.model_url or None,
        document_prefix=config.model_document_prefix,
        query_prefix=config.model_query_prefix,
    )


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
) -> Embedder:
    """The embedder that `spec` names: a model of the catalogue, `openai:NAME`, `gemini:NAME`,
    `auto-api` or `none`.

    A catalogue model whose weights are not here is fetched unless `offline`; if it cannot be, a
    NullEmbedder comes back that gives the reason, because search by words still works.
    `base_url`, `api_key`, `dim` and the prefixes are for APIs only, `folder` is as for `pull`;
    `brief` says that the process will embed one query and end.
    """
    # Imported late: a search that embeds nothing should pay for none of these.
    check_model(spec)
    spec = resolve(spec)
    if spec == "none":
        return NullEmbedder()
    if not is_local(spec):
        from clew.models.openai_api import ApiEmbedder

        provider, _, name = spec.partition(":")
        return ApiEmbedder(
            name,
            provider=provider,
            base_url=base_url,
            api_key=api_key,
            dim=dim,
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )

    from clew.models.catalogue import find_model
    from clew.models.pull import model_path, pull

    weights = model_path(spec)
    if weights is None and offline:
        return NullEmbedder(
            f"the weights of {spec!r} are not on this machine: run `clew models pull {spec}`"
        )
    if weights is None:
        try:
            weights = pull(spec, folder=folder, progress=progress)
        except ModelError as error:
            return NullEmbedder(str(error))

    from clew.models.onnx import OnnxEmbedder

    return OnnxEmbedder(find_model(spec), weights, threads=threads, brief=brief)


def resolve(spec: str) -> str:
    """What `auto-api` stands for on this machine now, or a provider without a model's name;
    everything else is itself."""
    from clew.models.apis import PROVIDERS, key_of

    if spec == AUTO_API:
        from clew.models.pull import model_path

        # Gemini before OpenAI, where there are keys of both.
        keyed = [provider for provider in sorted(PROVIDERS) if key_of(provider)]
        spec = DEFAULT_MODEL if model_path(DEFAULT_MODEL) or not keyed else keyed[0]
    return f"{spec}:{PROVIDERS[spec].model}" if spec in PROVIDERS else spec


def is_local(spec: str) -> bool:
    """Whether it runs in this process, as far as it runs at all."""
    from clew.models.apis import find_api_model

    return find_api_model(resolve(spec)) is None


def check_model(spec: str) -> None:
    """A ConfigError, with all there are to choose from, unless `spec` names an embedder."""
    if spec in ("none", AUTO_API) or not is_local(spec):
        return
    from clew.models.catalogue import catalogue

    embedders = [model.id for model in catalogue().values() if model.task == "embed"]
    if spec in embedders:
        return
    what = "a reranker, not an embedder" if spec in catalogue() else "no model that Clew knows"
    valid = (
        f"{', '.join(embedders)} (see `clew models list`), none, or an API: openai:NAME, "
        f"gemini:NAME or {AUTO_API}"
    )
    raise ConfigError(f"{spec!r} is {what}: choose {valid}")


def check_reranker(spec: str) -> None:
    """A ConfigError, with the nearest there is, unless `spec` names a cross-encoder."""
    from clew.models.catalogue import catalogue

    rerankers = [model.id for model in catalogue().values() if model.task == "rerank"]
    if spec not in rerankers:
        what = "an embedder, not a reranker" if spec in catalogue() else "no reranker Clew knows"
        raise ConfigError(f"{spec!r} is {what}: {nearest(spec, rerankers)}")


def load_reranker(spec: str, *, threads: int | None = None) -> Reranker:
    """The cross-encoder that `spec` names; a ModelError says what to do if it is not here."""
    check_reranker(spec)
    from clew.models.catalogue import find_model
    from clew.models.pull import model_path

    weights = model_path(spec)
    if weights is None:
        raise ModelError(
            f"the weights of {spec!r} are not on this machine: run `clew models pull {spec}`"
        )
    from clew.models.onnx import OnnxReranker

    return OnnxReranker(find_model(spec), weights, threads=threads)


def model_name(
    spec: str,
    *,
    base_url: str | None = None,
    dim: int | None = None,
    document_prefix: str = "",
    query_prefix: str = "",
) -> str:
    """What `load_embedder(spec).model` will say, without loading anything."""
    spec = resolve(spec)
    if spec == "none":
        return spec
    from clew.models.apis import find_api_model

    known = find_api_model(
        spec,
        base_url=base_url,
        dim=dim,
        document_prefix=document_prefix,
        query_prefix=query_prefix,
    )
    if known is not None:
        return known.identity
    from clew.models.catalogue import find_model, identity

    return identity(find_model(spec))


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
    from clew.models.apis import find_api_model
    from clew.models.catalogue import catalogue

    known = catalogue().get(model.partition("@")[0])
    if known is not None:
        return Traits(known.least_cosine, known.scripts, CHARACTERS * known.max_tokens, True)
    served = find_api_model(model.partition("#")[0])
    return Traits(window=CHARACTERS * served.known.tokens) if served else Traits()


def least_cosine(model: str, given: Mapping[str, float] | None = None) -> float:
    """The cosine below which this model's texts have nothing to do with each other: what is
    `given` for it, what the catalogue knows, or else `LEAST_COSINE`. A name may be without what
    says which weights, dimension or roles it is."""
    from clew.models.catalogue import catalogue

    bare = model.partition("#")[0].partition("@")[0]
    for name in (model, bare):
        if given and name in given:
            return given[name]
    known = catalogue().get(bare)
    return known.least_cosine if known else LEAST_COSINE


def why_missing(spec: str, *, base_url: str | None = None) -> str | None:
    """Why `spec` cannot embed on this machine right now; None: it can, as far as is known here."""
    name = resolve(spec)
    if name == "none":
        return NullEmbedder().reason
    from clew.models.apis import PROVIDERS, address, find_api_model, key_of

    if (served := find_api_model(name)) is not None:
        from clew.models.endpoint import NO_CLIENT, needs_key

        _, own = address(served.provider, base_url)
        if not own and key_of(served.provider) is None:
            return needs_key(name, PROVIDERS[served.provider].keys, "model_url")
        return None if _has("openai") else NO_CLIENT
    from clew.models.pull import model_path

    if model_path(name):
        return None
    fetch = f"run `clew models pull {name}`"
    if spec == AUTO_API:
        fetch += f", or set {' or '.join(key for p in PROVIDERS.values() for key in p.keys)}"
    return fetch


def _has(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
