"""Models: embedders, rerankers, and where their weights come from.

The commands `clew models …` are catalogue.py and pull.py; the engine needs `load_embedder` alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from clew.errors import ConfigError, ModelError, nearest
from clew.models.null import NullEmbedder
from clew.protocols import Embedder, Progress, Reranker

__all__ = [
    "DEFAULT_MODEL",
    "NullEmbedder",
    "check_model",
    "check_reranker",
    "load_embedder",
    "load_reranker",
    "model_name",
    "traits",
    "why_missing",
]

DEFAULT_MODEL = "bge-small"
UNRELATED = 0.3
"""The cosine of unrelated texts where the model is not in the catalogue."""
CHARACTERS = 4
"""Of a token, about."""


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
    brief: bool = False,
) -> Embedder:
    """The embedder that `spec` names: a model of the catalogue, `openai:NAME`, or `none`.

    A catalogue model whose weights are not here is fetched unless `offline`; if it cannot be, a
    NullEmbedder comes back that gives the reason, because search by words still works.
    `base_url`, `api_key` and `dim` are for `openai:` only, `folder` is as for `pull`; `brief` says
    that the process will embed one query and end.
    """
    # Imported late: a search that embeds nothing should pay for none of these.
    check_model(spec)
    if spec == "none":
        return NullEmbedder()
    _, separator, name = spec.partition(":")
    if separator:
        from clew.models.openai_api import ApiEmbedder

        return ApiEmbedder(name, base_url=base_url, api_key=api_key, dim=dim)

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


def check_model(spec: str) -> None:
    """A ConfigError, with all there are to choose from, unless `spec` names an embedder."""
    provider, _, name = spec.partition(":")
    if spec == "none" or (provider == "openai" and name):
        return
    from clew.models.catalogue import catalogue

    embedders = [model.id for model in catalogue().values() if model.task == "embed"]
    if spec in embedders:
        return
    what = "a reranker, not an embedder" if spec in catalogue() else "no model that Clew knows"
    valid = f"{', '.join(embedders)} (see `clew models list`), none, or openai:NAME for an API"
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


def model_name(spec: str, *, dim: int | None = None) -> str:
    """What `load_embedder(spec).model` will say, without loading anything."""
    provider, separator, _ = spec.partition(":")
    if spec == "none" or (separator and provider == "openai"):
        return spec if dim is None else f"{spec}@{dim}"
    from clew.models.catalogue import find_model, identity

    return identity(find_model(spec))


@cache
class Traits(NamedTuple):
    """What fusion wants to know of a model."""

    unrelated: float = UNRELATED
    """The cosine of texts that have nothing to do with each other."""
    scripts: tuple[str, ...] = ()
    """Those it knows; none named: all."""
    window: int = 0
    """About how many characters of a text it reads; 0: all, as far as is known."""


def traits(model: str) -> Traits:
    from clew.models.catalogue import catalogue

    known = catalogue().get(model.partition("@")[0])
    if known is None:
        return Traits()
    return Traits(known.least_cosine, known.scripts, CHARACTERS * known.max_tokens)


def why_missing(spec: str) -> str | None:
    """Why `spec` cannot embed on this machine right now; None: it can."""
    if spec == "none":
        return NullEmbedder().reason
    if ":" in spec:
        return None
    from clew.models.pull import model_path

    return None if model_path(spec) else f"run `clew models pull {spec}`"
