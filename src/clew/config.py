"""Settings: defaults < profile < the user's file < clew.toml < environment (CLEW_…) < arguments.

A profile is a clew.toml that comes with Clew (profiles/): which sources are asked and how much each
counts. Tables (`[sources.tags]`, `[collections]`…) are merged key by key, so that a line in the
user's file changes that line only.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from clew import trust
from clew.errors import ConfigError, check_known, nearest
from clew.filter import PERSONAL, domain_of
from clew.validate import is_number

FILE_NAME = "clew.toml"
SERVERS = ("postgresql", "qdrant")
SCHEMES = ("duckdb", "embedded", *SERVERS)
"""Kinds of stores, as their addresses name them."""
_FORM = "a store is written as duckdb:///notes.duckdb or embedded:///folder"
_SERVER_FORM = {
    "postgresql": "postgresql://user@host:5432/database",
    "qdrant": "qdrant://host:6333/name",
}
PROFILES = Path(__file__).parent / "profiles"
CATALOGUE = Path(__file__).parent / "models" / "catalogue.toml"
API_PROVIDERS = ("openai", "gemini")
AUTO_API = "auto-api"
"""The bundled model, or an API whose key is in the environment: the one setting by which a key
makes Clew send texts away."""


def _setting(  # one that names an address goes into trust.py as well
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    least: float = 0,
    most: float = math.inf,
) -> Any:
    metadata = {"about": about, "choices": choices, "least": least, "most": most}
    return field(default=default, metadata=metadata)


def _table(about: str) -> Any:
    return field(default_factory=dict, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting with its default and what it is for (`clew config` prints this)."""

    profile: str = _setting(
        "default",
        "What the settings start from: default for any folder, athena for that workspace layout.",
        choices=("athena", "default"),
    )
    store: str = _setting(
        "",
        "Where records are kept: empty for .clew in the folder, duckdb:///FILE, or on a server: "
        "postgresql://user@host/database, qdrant://host:port/name.",
    )
    model: str = _setting(
        "bge-small",
        "Embedder: a name from `clew models list`, hf:OWNER/NAME of the Hugging Face hub, "
        "openai:NAME, gemini:NAME, auto-api, or none for keyword search only.",
    )
    model_url: str = _setting(
        "", "Base URL of an OpenAI-compatible endpoint in place of the provider's own."
    )
    model_document_prefix: str = _setting(
        "", "Put before a text that an API embeds; empty: what is known of the model."
    )
    model_query_prefix: str = _setting("", "The same for queries.")
    threads: int = _setting(0, "Threads for embedding; 0: all cores.")
    device: str = _setting(
        "auto",
        "Where models run: auto (a GPU that can be used, else the processor), cpu, cuda or mps.",
        choices=("auto", "cpu", "cuda", "mps"),
    )
    offline: bool = _setting(False, "Never try to fetch model weights.")
    fusion: str = _setting(
        "adaptive",
        "How ranked lists become one; adaptive weighs words and vectors query by query.",
        choices=("adaptive", "convex", "dbsf", "rrf", "weighted_rrf"),
    )
    rrf_k: int = _setting(60, "The constant of reciprocal rank fusion.")
    rerank: bool = _setting(False, "Read the head of every list again with a cross-encoder.")
    reranker: str = _setting("reranker-en", "The cross-encoder: see `clew models list`.")
    rerank_blend: float = _setting(
        0.3, "The cross-encoder's part in the order: 0 none, 1 all of it.", most=1
    )
    rerank_seconds: float = _setting(
        2.0, "Time for reading; what does not fit keeps its place behind."
    )
    late_interaction: str = _setting(
        "off",
        "Order the first hundred by their tokens, too: on (codes are made by `clew index`), lazy "
        "(of what is found, when it is found first), or off.",
        choices=("on", "lazy", "off"),
    )
    late_model: str = _setting("colbert-small", "Its model: see `clew models list`.")
    late_codes: str = _setting(
        "fine",
        "What a token takes on disk: fine 51 bytes, compact 27 and a little less is found.",
        choices=("compact", "fine"),
    )
    late_seconds: float = _setting(
        0.25, "Time of a search for passages that have no codes; what does not fit keeps its place."
    )
    depth: int = _setting(50, "Candidates each source gives.", least=1)
    god_mode: bool = _setting(
        True, "Fast mode: sources have 5 s instead of 8, lesser ones give 3 candidates, not 5."
    )
    deadline: float = _setting(
        0.0,
        "Seconds the sources have, if not those of the mode; later ones are left out, and named.",
    )
    group_by: str = _setting(
        "passage",
        "What a hit is: a record, or a passage, so that a long file may be found more than once.",
        choices=("passage", "record"),
    )
    max_per_file: int = _setting(
        0,
        "Hits of one file at most. 0: three passages of a text while others are found, and any "
        "number of a table's rows.",
    )
    low_entropy: str = _setting(
        "keep",
        "Whether short queries of no known kind skip the vectors.",
        choices=("keep", "skip"),
    )
    confidence_high: float = _setting(
        0.8, "From this chance of being relevant on a hit is HIGH; with weighted_rrf: score."
    )
    confidence_med: float = _setting(0.045, "The same for MED; below it a hit is LOW.")
    floor: float = _setting(
        0.006,
        "Less likely to be relevant than this, a hit is left out of `recall` and of a search by "
        "meaning alone; 0: none is.",
        most=1,
    )
    cache: bool = _setting(True, "Keep answers until something is written.")
    cache_hours: float = _setting(24.0, "The longest an answer is kept.")
    cache_entries: int = _setting(1000, "The most answers that are kept.")
    semantic_cache: bool = _setting(
        True, "Also use lists of sources that a query of the same words found."
    )
    semantic_cosine: float = _setting(0.9, "How much alike such queries are.", most=1)
    chunk_size: int = _setting(1500, "Longest passage, in characters.", least=200)
    max_file_mb: float = _setting(50.0, "Larger files are skipped.")
    ivf_threshold: int = _setting(
        50_000,
        "From this many vectors on, inverted lists are used. Below 5,000 it has no effect: "
        "scanning so few is quicker than any index.",
    )
    synchronous: str = _setting(
        "NORMAL",
        "SQLite's: NORMAL survives a killed process, FULL a power cut as well.",
        choices=("NORMAL", "FULL"),
    )
    busy_seconds: float = _setting(10.0, "How long to wait for another process's write.")
    tree_branching: int = _setting(
        20, "Children a node of the tree has at most (`clew tree build`).", least=10, most=20
    )
    tree_scorer: str = _setting(
        "embedding",
        "Who scores nodes when the tree is searched.",
        choices=("embedding", "cross-encoder", "llm"),
    )
    tree_iterations: int = _setting(20, "Steps of a walk down the tree.", least=1)
    tree_beam: int = _setting(2, "Nodes that each step expands.", least=1)
    tree_nodes: int = _setting(500, "The most scorings of one walk by embeddings.", least=1)
    tree_reads: int = _setting(200, "The most scorings of one walk by a cross-encoder.", least=1)
    tree_seconds: float = _setting(60.0, "Time for one walk down the tree.")
    llm: str = _setting(
        "",
        "Chat model that takes queries apart for agentic search, writes answers (clew ask), reads "
        "passages for the graph, names groups of the tree and scores its nodes; empty: done "
        "without. With llm_url alone it is gemini-2.5-flash.",
    )
    llm_url: str = _setting("", "Base URL of the OpenAI-compatible endpoint of llm.")
    llm_seconds: float = _setting(
        10.0, "Time for one answer of llm; what it was for is done without after that.", least=0.05
    )
    keys: Mapping[str, str] = _table(
        "Endpoint (host, host:port or http://host:port) = the environment variable whose key is "
        "sent there; only in your own clew.toml."
    )
    hyperlinks: bool = _setting(True, "Make paths that a terminal shows clickable (OSC 8).")
    graph_update: bool = _setting(
        True, "Bring a graph that was built up to date whenever something is indexed."
    )
    least_cosine: Mapping[str, float] = _table(
        "Model = the cosine below which it says nothing, over what is known of the model: see "
        "working_memory."
    )
    weights: Mapping[str, float] = _table(
        "A source's share in the fused score, over that of its own table."
    )
    sources: Mapping[str, Mapping[str, Any]] = _table(
        "Per source a table: kind, weight, enabled, tier, deadline, and the kind's own options."
    )
    collections: Mapping[str, tuple[str, ...]] = _table(
        "Collection = folders: files there belong to it."
    )
    domains: Mapping[str, tuple[str, ...]] = _table(
        "Domain = folders: files there are of it. What is personal is found only when asked for."
    )
    lookup: Mapping[str, Any] = _table(
        "What clew.Search looks into and how it ranks: see lookup_settings.py."
    )

    @property
    def personal(self) -> tuple[str, ...]:
        """The folders that `domains` calls personal."""
        named = (folders for name, folders in self.domains.items() if domain_of(name) == PERSONAL)
        return tuple(sorted({folder for folders in named for folder in folders}))

    @property
    def own_personal(self) -> tuple[str, ...]:
        """Folders that a person named, and not the profile, which names what might be there."""
        usual = profile(self.profile).get("domains", {}).values()
        return tuple(f for f in self.personal if not any(f in folders for folders in usual))

    @property
    def seconds(self) -> float:
        """What the sources have together."""
        return self.deadline or (5.0 if self.god_mode else 8.0)


_FIELDS = {f.name: f for f in fields(Config)}


def all_settings() -> list[Field[Any]]:
    """Name, default and purpose of each setting."""
    return list(_FIELDS.values())


def about(name: str) -> str:
    """What a setting is for."""
    check_known("unknown setting", _FIELDS, name, kind=ConfigError)
    return str(_FIELDS[name].metadata["about"])


def load(folder: Path | None = None, arguments: Mapping[str, Any] | None = None) -> Config:
    """The settings in force for a folder."""
    values: dict[str, Any] = {}
    layers = _layers(folder, arguments or {})
    for _, layer in layers:
        for name, value in layer.items():
            values[name] = _merged(values.get(name), value) if name in _TABLES else value
    values["keys"] = {**_unbound(layers), **values.get("keys", {})}
    config = Config(**values)
    if config.confidence_med > config.confidence_high:
        raise ConfigError("confidence_med is above confidence_high: nothing could be MED")
    return config


def _unbound(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Endpoints that only a folder's clew.toml names: no key of the user's is meant for them."""
    named = [
        (origin == FILE_NAME, trust.find_origin(layer[name]))
        for origin, layer in layers
        for name in ("model_url", "llm_url")
        if layer.get(name)
    ]
    own = {place for by_folder, place in named if not by_folder}
    return {place: "" for by_folder, place in named if by_folder and place not in own}


def _merged(below: Mapping[str, Any] | None, above: Mapping[str, Any]) -> dict[str, Any]:
    """Key by key; a source's table too."""
    merged = dict(below or {})
    for name, value in above.items():
        known = merged.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = {**known, **value}
        merged[name] = value
    return merged


def origins(folder: Path | None = None) -> dict[str, str]:
    """Where each setting that is not the default was made."""
    layers = [layer for layer in _layers(folder, {}) if layer[0] != "profile default"]
    return {name: origin for origin, layer in layers for name in layer}


def _layers(folder: Path | None, arguments: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    layers: list[tuple[str, dict[str, Any]]] = []
    if (own := trust.user_folder() / FILE_NAME).exists():
        layers.append(("your own", _checked(trust.read_toml(own)[0], str(own))))
    if folder is not None and (folder / FILE_NAME).exists():
        values, content = read_folder(folder)
        trust.check_settings(folder, find_outward(values, folder), content)
        layers.append((FILE_NAME, values))
    environment = {
        name: os.environ[variable]
        for name in _FIELDS
        if (variable := f"CLEW_{name.upper()}") in os.environ
    }
    layers += [
        ("environment", {k: coerce(k, v, f"CLEW_{k.upper()}") for k, v in environment.items()}),
        ("argument", _checked(arguments, "arguments")),
    ]
    chosen = _last("profile", layers) or "default"
    fusion = _last("fusion", layers) or profile(chosen)["fusion"]
    alike, thresholds = _thresholds(fusion)
    return [(f"profile {chosen}", profile(chosen)), (f"profile {alike}", thresholds), *layers]


def is_calibrated(config: Config) -> bool:
    """Whether badges are by the chance of being relevant. Athena's fusion has thresholds of its own
    on the fused score."""
    return config.fusion != "weighted_rrf"


def _thresholds(fusion: str) -> tuple[str, dict[str, Any]]:
    """Thresholds of the profile that fuses alike: they are on Athena's fused score, or on the
    chance."""
    alike = "athena" if fusion == "weighted_rrf" else "default"
    return alike, {name: profile(alike)[name] for name in ("confidence_high", "confidence_med")}


def override(config: Config, **arguments: Any) -> Config:
    """The same settings with these in their place; None: as they are. Another fusion comes with its
    own thresholds."""
    given = {name: value for name, value in arguments.items() if value is not None}
    chosen = _checked(given, "arguments")
    if chosen.get("fusion", config.fusion) != config.fusion:
        chosen |= _thresholds(chosen["fusion"])[1]
    return replace(config, **chosen) if chosen else config


def _last(name: str, layers: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    return next((layer[name] for _, layer in reversed(layers) if name in layer), None)


@cache
def profile(name: str) -> dict[str, Any]:
    """What a profile sets."""
    file = PROFILES / f"{name}.toml"
    return _checked(trust.read_toml(file)[0], str(file))


def read_folder(folder: Path) -> tuple[dict[str, Any], bytes]:
    """What a folder's clew.toml sets, and the file itself, which may be none."""
    file = folder / FILE_NAME
    read, content = trust.read_toml(file) if file.exists() else ({}, b"")
    values = _checked(read, str(file))
    refuse_keys(values, file)
    return values, content


def find_outward(values: Mapping[str, Any], folder: Path) -> list[str]:
    """What a folder's clew.toml, and the profile that it names, want outside of it, in words."""
    named = values.get("profile")
    known = named in _FIELDS["profile"].metadata["choices"]
    layers = (profile(named), values) if known else (values,)
    return [want for layer in layers for want in trust.find_outward(layer, folder)]


def refuse_keys(values: Mapping[str, Any], file: Path) -> None:
    """A folder, trusted or not, does not say where keys go."""
    if "keys" in values:
        own = trust.user_folder() / FILE_NAME
        raise ConfigError(f"{file}: keys are set in your own file only: put [keys] into {own}")


def _checked(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    return {name: coerce(name, value, origin) for name, value in values.items()}


def coerce(name: str, value: Any, origin: str) -> Any:
    """A setting's value in its type, or an error that names what is wrong where."""
    try:
        about(name)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    if name in _TABLES:
        return _TABLES[name](value, origin)
    setting = _FIELDS[name]
    kind = type(setting.default)
    coerced = _read_as(kind, value)
    least, most = setting.metadata["least"], setting.metadata["most"]
    if coerced is None or (isinstance(coerced, (int, float)) and not least <= coerced <= most):
        expected = _EXPECTED[kind].format(least=least)
        expected += f" and at most {most:g}" if most < math.inf else ""
        raise ConfigError(f"{origin}: {name} = {value!r:.100}: expected {expected}")
    choices = setting.metadata["choices"]
    if choices and coerced not in choices:
        raise ConfigError(f"{origin}: {name} = {value!r:.100}: {nearest(coerced, choices)}")
    if name in _CHECKS and coerced != setting.default:
        try:
            _CHECKS[name](coerced)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {name}: {error}") from None
    return coerced


_EXPECTED = {
    int: "a whole number of at least {least:g}",
    float: "a number of at least {least:g}",
    bool: "true or false",
    str: "text",
}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _read_as(kind: type, value: Any) -> Any:
    """The value as one of this kind, a number also written as text; None: it is none."""
    if kind is str:
        return value if isinstance(value, str) else None
    if kind is bool:
        return _BOOLEANS.get(str(value).lower())
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if kind is int:
        return int(number) if number.is_integer() else None
    return number if math.isfinite(number) else None


def _pairs(value: Any) -> Any:
    """A table, or how the environment says one: keyword=1,vectors=2."""
    if not isinstance(value, str):
        return value
    pairs = [pair.rpartition("=") for pair in value.split(",") if pair.strip()]
    return {name.strip(): _read_as(float, number) for name, _, number in pairs}


def _weights(value: Any, origin: str) -> dict[str, float]:
    weights = _pairs(value)
    if isinstance(value, str) and None in weights.values():
        expected = "numbers such as keyword=1,vectors=0.5"
        raise ConfigError(f"{origin}: weights = {value!r:.100}: expected {expected}")
    return check_weights(weights, origin=origin)


def _sources(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    """Whether their options make sense is for the sources to say: see sources/__init__.py."""
    if not isinstance(value, Mapping) or not all(isinstance(t, Mapping) for t in value.values()):
        raise ConfigError(f"{origin}: sources are tables such as [sources.tags]: weight = 0.2")
    return {str(name): dict(table) for name, table in value.items()}


def check_url(url: str) -> None:
    """A ConfigError unless it names a kind of store; whether there is one is not asked."""
    scheme, found, rest = url.partition("://")
    shown = trust.hide_password(url)
    if "\0" in url:
        raise ConfigError(f"{shown!r} has a NUL in it: take it out")
    if not found:
        raise ConfigError(f"{shown!r} is no store: {_FORM}")
    check_known("there is no kind of store", SCHEMES, scheme, kind=ConfigError)
    if scheme in SERVERS:
        if re.search(r"[\s\x00-\x1f]", rest) or not re.search(r"[^/?&=]", rest):
            raise ConfigError(f"{shown!r} names no server: write {_SERVER_FORM[scheme]}")
        if rest.partition("/")[0].count("@") > 1 or re.search("%(?![0-9a-fA-F]{2})", rest):
            raise ConfigError(f"{shown!r}: in a password, @ is written as %40, and % as %25")
        return
    if not rest.startswith("/"):
        raise ConfigError(f"{shown!r} names a host: {_FORM}, with three slashes")
    if scheme == "duckdb" and not rest.strip("/"):
        raise ConfigError(f"{shown!r} names no file: {_FORM}")


def check_model(spec: str) -> None:
    """A ConfigError, with all there are to choose from, unless `spec` names an embedder."""
    provider, named, name = spec.partition(":")
    if spec in ("none", AUTO_API) or (provider in API_PROVIDERS and (name or not named)):
        return
    if re.fullmatch(r"hf:[\w.-]+/[\w.-]+(/[\w./-]+)?", spec) and "/.." not in spec:
        return
    models = trust.read_toml(CATALOGUE)[0]
    embedders = [name for name, model in models.items() if model["task"] == "embed"]
    if spec not in embedders:
        is_what = {"rerank": "a reranker, not an embedder", "late-interaction": "no embedder"}
        what = is_what[models[spec]["task"]] if spec in models else "no model that Clew knows"
        raise ConfigError(
            f"{spec!r} is {what}: choose {', '.join(embedders)} (see `clew models list`), none, "
            f"hf:OWNER/NAME of the hub, or an API: openai:NAME, gemini:NAME or {AUTO_API}"
        )


_NOUNS = {"rerank": "reranker", "late-interaction": "model of late interaction"}


def check_task(task: str, spec: str) -> None:
    """A ConfigError, with the nearest there is, unless `spec` names a model that is for this."""
    models, noun = trust.read_toml(CATALOGUE)[0], _NOUNS[task]
    known = [name for name, model in models.items() if model["task"] == task]
    if spec not in known:
        embeds = spec in models and models[spec]["task"] == "embed"
        what = f"an embedder, not a {noun}" if embeds else f"no {noun} Clew knows"
        raise ConfigError(f"{spec!r} is {what}: {nearest(spec, known)}")


def _lookup(value: Any, origin: str) -> dict[str, Any]:
    """Whether its values make sense is for lookup_settings.py to say, which few need."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{origin}: lookup is a table, such as [lookup]: folders = ['papers']")
    from clew.lookup_settings import LookupSettings

    try:
        LookupSettings.of(value)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return {str(name): given for name, given in value.items()}


def _folders(value: Any, origin: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise ConfigError(f'{origin}: expected a table of folders such as notes = ["notes/"]')
    folders: dict[str, tuple[str, ...]] = {}
    for name, given in value.items():
        several = (given,) if isinstance(given, str) else given
        if not isinstance(several, (list, tuple)) or not all(
            isinstance(folder, str) and folder.strip("/.") for folder in several
        ):
            raise ConfigError(f"{origin}: {name} = {given!r:.100}: expected folders, as text")
        # without the slash `notes` would also take in `notes-old`
        folders[str(name)] = tuple(
            folder.removeprefix("./").rstrip("/") + "/" for folder in several
        )
    return folders


def _cosines(value: Any, origin: str) -> dict[str, float]:
    cosines = _pairs(value)
    if not isinstance(cosines, Mapping):
        raise ConfigError(f"{origin}: least_cosine is a table such as {{ bge-small = 0.6 }}")
    for name, least in cosines.items():
        if not is_number(least, -1, 1):
            raise ConfigError(
                f"{origin}: least_cosine of {name!r} = {least!r:.100}: expected a number from -1 "
                "to 1"
            )
    return {str(name): float(least) for name, least in cosines.items()}


def _keys(value: Any, origin: str) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [pair.rpartition("=") for pair in value.split(",") if pair.strip()]
        value = {place.strip(): name.strip() for place, _, name in pairs}
    if not isinstance(value, Mapping):
        value = {"": ""}
    for place, name in value.items():
        # The value is not shown: it may be the key itself.
        if not trust.find_origin(place) or not re.fullmatch(r"[A-Za-z_]\w*|", str(name), re.ASCII):
            raise ConfigError(
                f"{origin}: keys = {{ {place!r:.100} = … }}: expected an endpoint and the name of "
                'an environment variable, such as "localhost:8000" = "OPENAI_API_KEY"'
            )
    return {trust.find_origin(place): str(name) for place, name in value.items()}


_CHECKS: dict[str, Callable[[str], None]] = {
    "store": check_url,
    "model": check_model,
    "reranker": partial(check_task, "rerank"),
    "late_model": partial(check_task, "late-interaction"),
}
_TABLES: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "keys": _keys,
    "least_cosine": _cosines,
    "weights": _weights,
    "sources": _sources,
    "collections": _folders,
    "domains": _folders,
    "lookup": _lookup,
}


def check_weights(value: Mapping[str, Any], *, origin: str = "weights") -> dict[str, float]:
    """Weights as numbers, none of them negative or NaN."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{origin}: weights is a table such as {{ keyword = 1.0 }}")
    for source, weight in value.items():
        if not is_number(weight, 0, sys.float_info.max):
            said = "must be 0 or more, as a number"
            raise ConfigError(f"{origin}: the weight of {source!r} {said}, not {weight!r:.100}")
    return {source: float(weight) for source, weight in value.items()}
