"""Filter: which records may be found."""

from __future__ import annotations

import operator
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from typing import Any, Protocol, TypedDict, Unpack

from clew.errors import InputError, check_known, nearest
from clew.timestamps import UNDATED, Moment, timestamp
from clew.validate import encodable, guarded, is_number

MOST = 400
"""Conditions of a kind. Databases nest each in the one before it, and none more than a thousand."""
PERSONAL = "personal"
"""The domain of what is found only by those who ask for it."""
_WORD = re.compile(r"[\w\u2010-]+")
# Neither is seen: soft hyphens, joiners and marks of direction; what chooses between two shapes.
_UNSEEN = re.compile("[\u034f\ufe00-\ufe0f]")
_NO = frozenset({"false", "no", "off", "0"})


def domain_of(*given: Any) -> str:
    """The one domain that these give, each of them a name or several: personal where any of them
    has that word in it, however it is written (`personal-finance` is another word); else the
    first."""
    if any(_says_personal(each) for each in given):
        return PERSONAL
    for each in given:
        several = each if isinstance(each, (list, tuple, set, frozenset)) else (each,)
        for name in several:
            if isinstance(name, str) and name.strip():
                return name
    return ""


def domain_in(fields: Mapping[str, Any]) -> str:
    """The domain that the fields of a record give it, whatever the case of the key.

    `domains`, which may list other things as well, and `domain.x`, as a row has a field of a field,
    count where they say personal.
    """
    named: list[Any] = []
    beside: list[Any] = []
    for key, value in fields.items():
        name, _, inner = _folded(key).strip().partition(".")
        if name == "domain" and not inner:
            named.append(value)
        elif name in ("domain", "domains"):
            beside.append({inner: value} if inner else value)
    return domain_of(*beside) if _says_personal(beside) else domain_of(*named)


def _says_personal(given: Any) -> bool:
    if isinstance(given, str):
        return _is_personal(given)
    if isinstance(given, Mapping):  # {personal: true}; in YAML {personal} is {personal: null}
        said = [key for key, value in given.items() if str(value).strip().lower() not in _NO]
        return _says_personal(said) or _says_personal(list(given.values()))
    if isinstance(given, (list, tuple, set, frozenset)):
        return any(map(_says_personal, given))
    return False


@lru_cache(maxsize=1024)
def _is_personal(name: str) -> bool:
    return any(word.strip("-\u2010_") == PERSONAL for word in _WORD.findall(_folded(name)))


def _folded(name: str) -> str:
    """The text as it looks, whatever its case and width."""
    if name.isascii():
        return name.lower()
    seen = (c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    return _UNSEEN.sub("", "".join(seen)).casefold()


class Filterable(Protocol):
    """What a filter looks at: a `Record` is one."""

    @property
    def id(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def path(self) -> str | None: ...
    @property
    def importance(self) -> float: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def created_at(self) -> float | None: ...
    @property
    def updated_at(self) -> float | None: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def valid_from(self) -> float | None: ...
    @property
    def valid_to(self) -> float | None: ...


class FilterFields(TypedDict, total=False):
    """What a caller may write for each field of a `Filter`."""

    collection: str | Sequence[str]
    type: str | Sequence[str]
    domain: str | Sequence[str]
    not_domain: str | Sequence[str]
    tags: str | Sequence[str]
    tags_all: str | Sequence[str]
    not_tags: str | Sequence[str]
    path: str | Sequence[str]
    within: str | Sequence[str]
    not_within: str | Sequence[str]
    importance_min: float | None
    importance_max: float | None
    after: Moment | None
    before: Moment | None
    created_after: Moment | None
    created_before: Moment | None
    active: bool | None
    valid_at: Moment | None
    as_of: Moment | None
    ids: str | Sequence[str]
    metadata: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Which records may be found. Every field narrows; fields left out, or empty, do not.

    >>> Filter(collection="notes", tags=["risk", "trading"], after="2026-01-01")
    >>> Filter(path="projects/**/*.md", metadata={"status": "open", "effort": {"lte": 3}})
    """

    collection: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    not_domain: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Any of these, or below one: `project` is also `project/bike`."""
    tags_all: tuple[str, ...] = ()
    """All of these, or below each."""
    not_tags: tuple[str, ...] = ()
    """None of these, nor below one."""
    path: tuple[str, ...] = ()
    """Any of these: a prefix (`projects/`), or a glob where it has `*`, `?` or `[`."""
    within: tuple[str, ...] = ()
    """Below any of these folders, whatever `path` says: what a source or a caller is kept to."""
    not_within: tuple[str, ...] = ()
    """Below none of these folders. What has no path is in no folder."""
    importance_min: float | None = None
    importance_max: float | None = None
    after: float | None = None
    """updated_at at or after."""
    before: float | None = None
    """updated_at strictly before."""
    created_after: float | None = None
    """created_at at or after."""
    created_before: float | None = None
    """created_at strictly before."""
    active: bool | None = None
    """True: what has not ended; False: what has."""
    valid_at: float | None = None
    """What says of itself that it is true at that moment, or says nothing of it."""
    as_of: float | None = None
    """What held at that moment: true since then or before, not till then, and not ended yet."""
    ids: tuple[str, ...] = ()
    metadata: tuple[tuple[str, Any], ...] = ()
    """Sorted (key, value) pairs; a value is a scalar, a sorted tuple of (operator, bound), all of
    which hold, or one of ("eq", scalar), any of which does."""

    @guarded
    def __init__(self, **given: Unpack[FilterFields]) -> None:
        check_known("unknown filter field", _READ, *given)
        values: Mapping[str, Any] = given
        for f in fields(Filter):
            value = _READ[f.name](f.name, values[f.name]) if f.name in values else f.default
            object.__setattr__(self, f.name, value)
        self._check()

    def _check(self) -> None:
        for name in ("", "created_"):
            after, before = getattr(self, f"{name}after"), getattr(self, f"{name}before")
            if after is not None and before is not None and after >= before:
                raise InputError(
                    f"this time range is empty: `{name}after` must be earlier than `{name}before`"
                )
        low, high = self.importance_min, self.importance_max
        if low is not None and high is not None and low > high:
            raise InputError("this range is empty: importance_min is above importance_max")
        for what, count in (
            ("tags_all and metadata values", len(self.tags_all) + self._count_values()),
            ("paths", len(self.path)),
            ("folders in `within`", len(self.within)),
            ("folders in `not_within`", len(self.not_within)),
        ):
            if count > MOST:
                raise InputError(
                    f"a filter has at most {MOST} {what}, not {count:,}: ask for less at a time, "
                    "or name the records by their `ids`"
                )

    def _count_values(self) -> int:
        return sum(len(value) if isinstance(value, tuple) else 1 for _, value in self.metadata)

    @classmethod
    def of(cls, value: Filter | Mapping[str, Any] | None) -> Filter:
        """A Filter from what a caller may give: one already, a mapping of its fields, or None."""
        if value is None:
            return EVERYTHING
        if isinstance(value, Filter):
            return value
        if isinstance(value, Mapping):
            return cls(**{str(name): bound for name, bound in value.items()})
        raise InputError(f"a filter is a Filter or a mapping, not {value.__class__.__name__}")

    def allows(self, record: Filterable) -> bool:
        """Whether a record may be found. Stores ask their indexes instead; this is for sources
        that have records of their own."""
        tags = {tag.lstrip("#").casefold() for tag in record.tags}
        path, updated = record.path, record.updated_at
        created, ended = record.created_at, record.ended_at
        since, until = record.valid_from, record.valid_to
        tests = (
            not self.collection or record.collection in self.collection,
            not self.type or record.type in self.type,
            not self.domain or record.domain in self.domain,
            record.domain not in self.not_domain,
            not self.ids or record.id in self.ids,
            not self.tags or any(_below(tag, tags) for tag in self.tags),
            all(_below(tag, tags) for tag in self.tags_all),
            not any(_below(tag, tags) for tag in self.not_tags),
            not self.path or (path is not None and any(on_path(p, path) for p in self.path)),
            not self.within or (path is not None and path.startswith(self.within)),
            path is None or not path.startswith(self.not_within),
            self.importance_min is None or record.importance >= self.importance_min,
            self.importance_max is None or record.importance <= self.importance_max,
            self.after is None or (updated is not None and updated >= self.after),
            self.before is None or (updated is not None and UNDATED != updated < self.before),
            self.created_after is None or (created is not None and created >= self.created_after),
            self.created_before is None
            or (created is not None and UNDATED != created < self.created_before),
            self.active is None or self.active is (ended is None),
            all(
                (since is None or since <= at) and (until is None or until > at)
                for at in (self.valid_at, self.as_of)
                if at is not None
            ),
            self.as_of is None or since is not None or created is None or created <= self.as_of,
            self.as_of is None or ended is None or ended > self.as_of,
        )
        return all(tests) and all(_has(record.metadata, key, v) for key, v in self.metadata)

    def narrowed(self, other: Filter) -> Filter | None:
        """The two in one, or None where nothing could match."""
        try:
            return self & other
        except InputError:
            return None

    def without(self, *names: str) -> Filter:
        """The same with these fields left open."""
        of = {name: EVERYTHING if name in names else self for name in Filter.__slots__}
        return _make_filter({name: getattr(one, name) for name, one in of.items()})

    def __bool__(self) -> bool:
        return self is not EVERYTHING and self != EVERYTHING

    def __and__(self, other: Filter) -> Filter:
        """The two in one: used for what the query text adds (`tag:`, `path:`…) to what the caller
        gave."""
        if not self or not other:
            return self or other
        merged: dict[str, Any] = {}
        required: tuple[str, ...] = ()
        for name in Filter.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine in ((), None) or theirs in ((), None) or mine == theirs:
                merged[name] = theirs if mine in ((), None) else mine
            elif name in ("after", "created_after", "importance_min"):
                merged[name] = max(mine, theirs)
            elif name in ("before", "created_before", "importance_max"):
                merged[name] = min(mine, theirs)
            elif name in ("not_domain", "not_tags", "not_within", "tags_all"):
                merged[name] = tuple(dict.fromkeys((*mine, *theirs)))
            elif name == "tags" and 1 in (len(mine), len(theirs)):
                # any of one tag is all of it, so both wishes fit into one filter
                alone, several = sorted((mine, theirs), key=len)
                merged["tags"] = several if len(several) > 1 else ()
                required = alone if len(several) > 1 else (*alone, *several)
            elif name in ("collection", "type", "domain", "ids", "within"):
                common = [v for v in mine if v in theirs]
                if name == "within":  # the inner one of two folders is in both
                    pairs = product(mine, theirs)
                    nested = ((a, b) for a, b in pairs if a.startswith(b) or b.startswith(a))
                    common = [max(a, b, key=len) for a, b in nested]
                if not common:
                    raise InputError(
                        f"no record can match: {name} is asked to be {mine} and {theirs} at once"
                    )
                merged[name] = tuple(dict.fromkeys(common))
            elif name == "metadata":
                merged[name] = tuple(sorted({*mine, *theirs}, key=repr))  # each holds
            else:
                raise InputError(f"{name} is given twice, in the filter and in the query text")
        merged["tags_all"] = tuple(dict.fromkeys((*merged["tags_all"], *required)))
        combined = _make_filter(merged)
        combined._check()
        return combined


def _make_filter(values: Mapping[str, Any]) -> Filter:
    """Make a filter of values that are as it has them."""
    made = object.__new__(Filter)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (str, Sequence, set, frozenset)) or isinstance(value, bytes):
        raise InputError(f"filter field {name!r} takes a string or several, not {value!r}")
    values = (value,) if isinstance(value, str) else tuple(value)
    for v in values:
        if not isinstance(v, str):
            raise InputError(f"filter field {name!r} takes strings, not {v!r}")
    return tuple(dict.fromkeys(map(encodable, values)))


def _paths(name: str, value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.removeprefix("./") for path in _names(name, value)))


def _domains(name: str, value: Any) -> tuple[str, ...]:
    return tuple(map(domain_of, _names(name, value)))


def _tags(name: str, value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(v.lstrip("#").casefold() for v in _names(name, value)))


def _folders(name: str, value: Any) -> tuple[str, ...]:
    return tuple(folder.rstrip("/") + "/" for folder in _names(name, value))


def _bound(name: str, value: Any) -> float | None:
    if value is not None and not _is_bound(value):
        raise InputError(f"filter field {name!r} takes a finite number, not {value!r}")
    return None if value is None else float(value)


def _is_bound(value: Any) -> bool:
    return is_number(value, -sys.float_info.max, sys.float_info.max)


def _moment(name: str, value: Any) -> float | None:
    return None if value is None else timestamp(value, name=name)


def _flag(name: str, value: Any) -> bool | None:
    if value not in (None, True, False):
        raise InputError(f"filter field {name!r} takes True, False or None, not {value!r}")
    return value  # type: ignore[no-any-return]


def _conditions(_: str, metadata: Any) -> tuple[tuple[str, Any], ...]:
    metadata = metadata or {}
    if not isinstance(metadata, Mapping):
        raise InputError(f"filter field 'metadata' takes a mapping, not {metadata!r}")
    conditions: list[tuple[str, Any]] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InputError(f"a metadata key is a string, not {key!r}")
        key = encodable(key)
        if isinstance(value, Mapping):
            bounds = list(value.values())
            alike = all(isinstance(b, str) for b in bounds) or all(map(_is_bound, bounds))
            if not bounds or not alike:
                raise InputError(
                    f"a range on metadata {key!r} has numbers or strings as bounds, not {value!r}"
                )
            for name in value:
                if name not in OPERATORS:
                    hint = nearest(str(name), OPERATORS)
                    raise InputError(f"unknown range {name!r} on metadata {key!r}: {hint}")
            plain = {op: encodable(b) if isinstance(b, str) else b for op, b in value.items()}
            conditions.append((key, tuple(sorted(plain.items()))))
        elif isinstance(value, (list, tuple, set, frozenset)) and value:
            several = dict.fromkeys(_scalar(key, each) for each in value)
            conditions.append((key, tuple(("eq", each) for each in several)))
        else:
            conditions.append((key, None if value is None else _scalar(key, value)))
    return tuple(sorted(conditions, key=lambda c: c[0]))


def _scalar(key: str, value: Any) -> Any:
    if not isinstance(value, (str, int, float)):
        raise InputError(
            f"metadata {key!r} can be compared with a string, a number, a boolean, several of them "
            f"(any of which will do), None or a range such as {{'gte': 3}}, not with {value!r:.100}"
        )
    return encodable(value) if isinstance(value, str) else value


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("collection", "type", "ids"), _names),
    "path": _paths,
    **dict.fromkeys(("domain", "not_domain"), _domains),
    **dict.fromkeys(("tags", "tags_all", "not_tags"), _tags),
    **dict.fromkeys(("within", "not_within"), _folders),
    **dict.fromkeys(("importance_min", "importance_max"), _bound),
    **dict.fromkeys(("after", "before", "created_after", "created_before"), _moment),
    **dict.fromkeys(("valid_at", "as_of"), _moment),
    "active": _flag,
    "metadata": _conditions,
}
OPERATORS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def _has(metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
    value = metadata.get(key)
    if wanted is None:
        return value is None
    if isinstance(wanted, tuple) and wanted[0][0] == "eq":
        return any(_has(metadata, key, each) for _, each in wanted)
    for member in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(wanted, tuple):
            text = isinstance(wanted[0][1], str)
            alike = isinstance(member, str) if text else isinstance(member, (int, float))
            if alike and all(OPERATORS[name](member, bound) for name, bound in wanted):
                return True
        elif isinstance(member, str) == isinstance(wanted, str) and member == wanted:
            return True
    return False


def _below(tag: str, tags: Collection[str]) -> bool:
    """Whether one of these is the tag, or lies below it: `project/bike` is a `project`."""
    return tag in tags or any(other.startswith(f"{tag}/") for other in tags)


def on_path(pattern: str, path: str) -> bool:
    """A prefix, or also a glob where the pattern has `*`, `?` or `[`, which names may have too."""
    if path.startswith(pattern):
        return True
    is_glob = any(c in pattern for c in "*?[")
    return is_glob and glob_pattern(pattern).fullmatch(path) is not None


def exact_glob(path: str) -> str:
    """The glob that this path alone fits: as it is, it stands for all that begin so, or is one."""
    escaped = re.sub(r"[*?[]", r"[\g<0>]", path)
    return escaped if escaped != path else re.sub(r"\w(?=\W*\Z)", r"[\g<0>]", path)


STAR, FOLDERS = "*", "**/"
"""Of a glob: any characters within a folder's or a file's name; any folders, or none."""


@lru_cache(maxsize=64)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` crosses folders, `[…]` is a set: as in .gitignore."""
    try:
        return re.compile(join_glob(split_glob(glob)), re.DOTALL)
    except (re.error, OverflowError):
        return re.compile(re.escape(glob))


def split_glob(glob: str) -> list[str]:
    """STAR, FOLDERS, and expressions that match one character each."""
    parts: list[str] = []
    i, closed = 0, glob.rfind("]")
    while i < len(glob):
        if glob.startswith(FOLDERS, i) and (i == 0 or glob[i - 1] == "/"):
            part, step = [FOLDERS], 3
        elif glob.startswith("**", i):
            part, step = [FOLDERS, STAR], 2
        elif glob[i] in "*?":
            part, step = [STAR if glob[i] == "*" else "[^/]"], 1
        elif glob[i] == "[" and i + 2 <= closed:
            members = glob[i + 1 : (end := glob.find("]", i + 2))]
            members = members.replace("\\", "\\\\").replace("[", "\\[")
            members = "^" + members[1:] if members.startswith("!") else members
            part, step = [f"(?!/)[{members}]"], end + 1 - i
        else:
            part, step = [re.escape(glob[i])], 1
        parts += part
        i += step
    return parts


def join_glob(parts: Iterable[str]) -> str:
    """A regular expression of STAR, FOLDERS (after nothing, a slash, or before a STAR) and
    expressions that match one character each.

    What stands between two of them is taken where it comes first, and stays there (an atomic
    group): whatever fits further on, the next STAR or FOLDERS reaches from here as well. So nothing
    is tried again, and the time is that of the path's length by the glob's, whatever is in it.
    """
    runs = [[""]]  # by FOLDERS, then by STAR
    for part in parts:
        if part == FOLDERS:
            runs.append([""])
        elif part == STAR:
            runs[-1].append("")
        else:
            runs[-1][-1] += part
    joined = ""
    for n, (first, *others) in enumerate(runs):
        last = n == len(runs) - 1  # and so its end is that of the path
        bound, free = (others[:-1], others[-1:]) if last else (others, [])
        run = first + "".join(f"(?>[^/]*?{fixed})" for fixed in bound)
        run += "".join(f"[^/]*{fixed}" for fixed in free)
        run = f"(?:[^/]*+/)*?{run}" if n else run
        joined += run if last else f"(?>{run})"
    return joined


EVERYTHING = Filter()
"""No restriction."""


# ---------------------------------------------------------------------- visibility

SKILLS = ".agent/skills/"
_SKILLS_ONLY = Filter(within=SKILLS)


@lru_cache(maxsize=64)  # most searches ask with the same few
def visible(
    wanted: Filter, *, include_personal: bool, skills_only: bool, personal: tuple[str, ...]
) -> Filter:
    """The filter, narrowed to what may be seen. It holds in every source, as any filter does, and
    is part of every cache's key. To filter by the personal domain is to ask for it. `personal` are
    the folders that the settings call so now, whatever they did when their files were indexed."""
    if not include_personal and PERSONAL not in wanted.domain:
        wanted = wanted & Filter(not_domain=PERSONAL, not_within=personal)
    return wanted & _SKILLS_ONLY if skills_only else wanted


def wanted_beside(filter: Filter) -> Filter:
    """What a filter asks for beside what may be seen."""
    return filter.without("not_domain", "not_within")


def may_be_seen(record: Filterable, filter: Filter) -> bool:
    """Whether this filter lets it be seen, for what a source named that may not have looked."""
    hidden = record.path is not None and record.path.startswith(filter.not_within)
    return not hidden and domain_of(record.domain) not in filter.not_domain
