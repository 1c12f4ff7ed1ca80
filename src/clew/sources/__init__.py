"""The kinds of sources: each gives one ranked list. A function in a file here and one line in
`KINDS` per kind.

A kind is a function that makes a source from the folder whose store it is and the options that
`[sources.NAME]` of the settings gives. One that has records of its own has the option `name`, which
it is told and nobody sets: ids begin with it. An installed package adds kinds by the entry point
group `clew.sources`: they run in a process of their own (worker.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clew.config import Config, check_weights, profile
from clew.errors import ConfigError, check_known, nearest
from clew.protocols import Context, Source, Store
from clew.types import Answer, Candidate, Hit, Passage, Query, Vector
from clew.validate import is_whole

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS = {
    "all_words": "clew.sources.store",
    "canonical": "clew.sources.store",
    "exocortex": "clew.sources.sqlite",
    "filenames": "clew.sources.store",
    "files": "clew.sources.files",
    "framework_docs": "clew.sources.store",
    "git": "clew.sources.git",
    "graph": "clew.sources.store",
    "keyword": "clew.sources.store",
    "sqlite": "clew.sources.sqlite",
    "tags": "clew.sources.store",
    "tokens": "clew.sources.tokens",
    "tree": "clew.sources.tree",
    "vectors": "clew.sources.store",
    "web": "clew.sources.web",
}
"""Each with the module that has the function of its name, imported when settings name the kind."""
QUICK = frozenset(
    (
        "all_words",
        "canonical",
        "filenames",
        "framework_docs",
        "keyword",
        "tags",
        "tokens",
        "vectors",
    )
)
"""Kinds that answer from this store's own indexes, in less time than a thread takes to wake: see
search/collect.py."""
PARTIAL = frozenset({"framework_docs"})
"""Kinds that look at a part of the store; so does any quick one that is told a `collection`."""
TIERS = ("high", "mid", "low")
RESERVED = ("kind", "weight", "enabled", "tier", "deadline", "floor")
GROUP = "clew.sources"
"""Entry points of installed packages."""

Listing = Callable[[Query, Context], Sequence[Candidate] | Answer]
"""A source without its hooks."""


class FunctionSource(Source):
    """A function as a source. Of one that reads the store alone, `outside` is ""; what any other
    reads, nobody knows. `by_terms`: of the query's words it reads the terms alone, in whatever
    order."""

    def __init__(self, function: Listing, outside: str | None = None, by_terms: bool = False):
        self.function, self.outside, self.by_terms = function, outside, by_terms

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        if self.by_terms:  # in one order for all, so that sums of their worths are the same
            words = tuple(sorted(query.terms.words))
            query = replace(query, terms=replace(query.terms, words=words))
        return self.function(query, context)

    def freshness(self, store: Store) -> str | None:
        return self.outside

    def reads(self, query: Query) -> tuple[tuple[str, ...], ...] | None:
        return tuple(sorted(query.terms.words)) if self.by_terms else None

    @classmethod
    def of(cls, given: Source | Listing) -> Source:
        """What is a source already, or a function made one."""
        return given if isinstance(given, Source) else cls(given)


@dataclass(frozen=True, slots=True)
class ExternalPassage(Passage):
    """What a source found outside the store, with what it knows of it."""

    hit: Hit | None = None
    """As lookups show it, where that is not as a passage of a record."""
    vector: Vector | None = None
    """By the storage's model."""
    similarity: float | None = None
    """The cosine to the query that the source has measured."""
    file: str | None = None
    """The file of this machine that it is in, from the root."""
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def find_kind(name: str) -> Callable[..., Source] | None:
    """The function that makes sources of this kind, if it is one of ours."""
    if name not in KINDS:
        return None
    make: Callable[..., Source] = getattr(import_module(KINDS[name]), name)
    return make


def file_state(*files: Path) -> str:
    """What changes with these files: for what a source says of its freshness."""
    states = []
    for file in files:
        try:
            about = file.stat()
            states.append(f"{about.st_ino}.{about.st_mtime_ns}.{about.st_size}")
        except OSError:
            states.append("-")
    return "/".join(states)


# ---------------------------------------------------------------------- from the settings


@dataclass(frozen=True, slots=True)
class Configured:
    """One source, and what the settings say of it."""

    source: Source
    """A function that is given here becomes one."""
    kind: str
    weight: float = 1.0
    tier: str = "high"
    """What is not high gives a few candidates only."""
    deadline: float | None = None
    """Seconds of its own, within those of all."""
    enabled: bool = True
    floor: float = 0.0
    """The least that a candidate has beside other sources: see `Query`."""
    part: bool = False
    """Whether it looks at a part of the store only: see ranking/fusion.py."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", FunctionSource.of(self.source))

    @classmethod
    def of(cls, name: str, given: Source | Listing | Configured) -> Configured:
        """A function that takes a source's place is of the kind that has its name."""
        return given if isinstance(given, Configured) else cls(FunctionSource.of(given), kind=name)

    @property
    def quick(self) -> bool:
        return self.kind in QUICK


def has_own_sources(sources: Mapping[str, Configured]) -> bool:
    """Whether all that is asked reads the store, and small files beside it, and nothing else."""
    return all(
        one.kind in QUICK or one.kind in ("graph", "tree")
        for one in sources.values()
        if one.enabled
    )


def configure(config: Config, root: Path) -> dict[str, Configured]:
    """Every source the settings name, those that are switched off too."""
    tables = config.sources or profile(config.profile)["sources"]  # a bare Config() names none
    made = {name: _configure_one(name, tables[name], root, config.weights) for name in tables}
    check_known("weights: there is no source", made, *config.weights, kind=ConfigError)
    return made


def states(
    sources: Mapping[str, Source | Listing | Configured],
    config: Config,
    last: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Each source as people see it: what it is, whether it is on, how the `last` search went."""
    listed = []
    for name, given in sources.items():
        source = Configured.of(name, given)
        listed.append(
            {
                "name": name,
                "kind": source.kind,
                "weight": config.weights.get(name, source.weight),
                "tier": source.tier,
                "deadline": source.deadline or config.seconds,
                "state": "on" if source.enabled else "off",
                **last.get(name, {"ms": None, "problem": None, "at": None}),
            }
        )
    return listed


def _configure_one(
    name: str, table: Mapping[str, Any], root: Path, weights: Mapping[str, float]
) -> Configured:
    where = f"[sources.{name}]"
    kind = table.get("kind", name)
    make = find_kind(kind)
    installed: dict[str, EntryPoint] = {}
    if make is None:  # only then are the kinds looked for that other packages bring
        from importlib.metadata import entry_points

        installed = {point.name: point for point in entry_points(group=GROUP)}
        known = {*KINDS, *installed}
        check_known(f"{where}: there is no source", known, kind, kind=ConfigError)
    enabled, tier, deadline = (table.get(key) for key in ("enabled", "tier", "deadline"))
    if not isinstance(enabled, (bool, type(None))):
        raise ConfigError(f"{where}: enabled = {enabled!r}: expected true or false")
    if tier is not None:
        check_known(f"{where}: tier =", TIERS, tier, kind=ConfigError)

    def check(key: str, number: Any) -> float:
        return check_weights({key: number}, origin=where)[key]

    deadline = None if deadline is None else check("deadline", deadline)
    floor = check("floor", table.get("floor", 0.0))
    weight = check(name, weights.get(name, table.get("weight", 1.0)))
    given = {key: value for key, value in table.items() if key not in RESERVED}
    if enabled is False:  # its options need not be whole
        source: Source = FunctionSource(lambda query, context: ())
    elif make is None:
        source = _hire(name, installed[kind], root, given, where)
    else:
        source = make(root, **_check_options(make, given, where, name=name))
    return Configured(
        source=source,
        kind=kind,
        weight=weight,
        tier=tier or "high",
        deadline=deadline,
        enabled=enabled is not False,
        floor=floor,
        part=kind in PARTIAL or (kind in QUICK and "collection" in given),
    )


def _hire(name: str, point: EntryPoint, root: Path, given: Mapping[str, Any], where: str) -> Source:
    """A source of an installed package, in a process of its own; what it is called with is checked
    here, where the user can act on it."""
    from clew.sources.worker import SourceRecipe, WorkerSource

    try:
        make = point.load()
    except Exception as error:
        raise ConfigError(
            f"the source {point.name!r} ({point.value}) cannot be loaded: {error}; mend or "
            "uninstall the package"
        ) from error
    options = _check_options(make, given, where)
    version = point.dist.version if point.dist else ""
    return WorkerSource(name, SourceRecipe(point.name, point.value, version, root, options))


def _check_options(
    make: Callable[..., Source], given: Mapping[str, Any], where: str, **told: str
) -> dict[str, Any]:
    """What to call a kind with: options that the settings give, each of which has to be one it
    knows, of the right type; and what it is `told`, if it wants to know that."""
    parameters = inspect.signature(make).parameters
    options = {n: p for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    checked: dict[str, Any] = {n: value for n, value in told.items() if options.pop(n, None)}
    for name, value in given.items():
        if name not in options:
            hint = nearest(name, {*options, *RESERVED})
            raise ConfigError(f"{where}: there is no option {name!r}: {hint}")
        annotation = options[name].annotation
        if not isinstance(annotation, str):  # of a package that has them evaluated
            annotation = inspect.formatannotation(annotation)
        checked[name] = _check_option(value, annotation, f"{where}: {name}")
    missing = [n for n, p in options.items() if p.default is p.empty and n not in given]
    if missing:
        raise ConfigError(f"{where}: {' and '.join(missing)} must be given")
    return checked


def _check_option(value: Any, annotation: str, where: str) -> Any:
    """Options are of few types; any other is left to the kind itself."""
    several = annotation.startswith("tuple[str")
    if several and isinstance(value, str):
        value = [value]
    expected, fits = {
        "str": ("text", isinstance(value, str)),
        "int": ("a count", is_whole(value, 0)),
        "float": ("float", isinstance(value, (int, float)) and not isinstance(value, bool)),
        "bool": ("bool", isinstance(value, bool)),
        "tuple[str, ...]": (
            "texts",
            isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value),
        ),
    }.get(annotation, ("", True))
    if not fits:
        raise ConfigError(f"{where} = {value!r:.100}: expected {expected}")
    return tuple(value) if several else value
