"""What to say of conditions that no record meets: what was read as a filter, and what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from clew.filter import EVERYTHING, Filter, visible
from clew.protocols import Store
from clew.text.passage import lineage
from clew.types import Note, Query, SearchResult

SHOWN = 8
"""Names that are listed; the rest is counted."""
MOST = 20_000
"""Names among which the nearest is looked for."""
LOOKED_AT = 20
"""Conditions of a kind that are looked at: each takes as long as a search."""
_FIELDS = {"tags": "tag", "tags_all": "tag", "type": "type", "collection": "collection"}
_FIELDS |= {"path": "path"}
"""A filter's fields whose values are names, as they are written in a query."""
_SAID = {
    "tag": ("no record has the tag {!r}", "tags"),
    "type": ("no record is of the type {!r}", "types"),
    "collection": ("there is no collection {!r}", "collections"),
    "path": ("no path begins with, or matches, {!r}", "folders"),
    "key": ("no record has {!r} in its metadata", "keys"),
    "namespace": ("there is no namespace {!r}", "namespaces"),
}


def notes(query: Query, scope: Filter, store: Store, *, found: bool) -> tuple[Note, ...]:
    """Notes on what the text of a query names, among the records that `scope` allows."""
    plain = query.as_words[:LOOKED_AT]
    words = [_as_words(field, value, scope, store) for field, value in plain]
    return (*words, *(unmet(query.named, scope, store) if not found else ()))


def unmet(named: Filter, scope: Filter, store: Store, *, typed: bool = True) -> tuple[Note, ...]:
    """Conditions that no record meets; one note for all where each of them is met by some. `typed`
    says that they were in the text, where they may have been meant as words."""
    said = [
        _unknown(_FIELDS[field], value, scope, store, typed=typed)
        for field in _FIELDS
        for value in getattr(named, field)[:LOOKED_AT]
        if _count(store, scope, Filter(**{field: value})) == 0
    ]
    said += _unknown_keys(named, scope, store)
    if not said and named and _count(store, scope, named) == 0:
        text = f"no record meets all of these conditions at once: {_written(named)}"
        said = [Note("", "", "filter", (), text)]
    return tuple(said) if store.count(scope) else ()


def add_notes(
    result: SearchResult, wanted: Filter, store: Store, *, personal: Sequence[str], **may: bool
) -> SearchResult:
    """The answer, with which of the options' filters no record meets where nothing was found; `may`
    is what the search may see (`include_personal`, `skills_only`)."""
    if result or not wanted:
        return result
    scope = visible(
        Filter(domain=wanted.domain),
        include_personal=may["include_personal"],
        skills_only=may["skills_only"],
        personal=personal,
    )
    said = unmet(wanted, scope.without("domain"), store, typed=False)
    return replace(result, notes=(*result.notes, *said))


def unknown_namespaces(named: Sequence[str], store: Store) -> tuple[Note, ...]:
    """Namespaces that have no memory: with the nearest, and those there are."""
    known = _names("collection", EVERYTHING, store)
    return tuple(
        Note(
            *("namespace", name, "filter", tuple(known)),
            f"{_SAID['namespace'][0].format(name)}; {_instead('namespace', name, known)}",
        )
        for name in named
        if name not in known
    )


def _count(store: Store, scope: Filter, wanted: Filter) -> int:
    both = scope.narrowed(wanted)
    return 0 if both is None else store.count(both)


def _as_words(field: str, value: str, scope: Filter, store: Store) -> Note:
    if field.startswith("-"):
        text = f"{field}:{value} left out the word {value}: of filters only tag: can be left out"
        return Note(field, value, "words", (), text)
    known = _names(field, scope, store)
    text = f"{field}:{value} was taken as words, since {_SAID[field][0].format(value)}"
    return Note(field, value, "words", tuple(known), f"{text}; {_instead(field, value, known)}")


def _unknown(field: str, value: str, scope: Filter, store: Store, *, typed: bool) -> Note:
    known = _names(field, scope, store)
    text = _SAID[field][0].format(value)
    text += f", and {field}:{value} was read as a filter" if typed else ""
    text += f"; {_instead(field, value, known)}"
    text += f'; to look for the words, write "{field}:{value}" in quotes' if typed else ""
    return Note(field, value, "filter", tuple(known), text)


def _unknown_keys(named: Filter, scope: Filter, store: Store) -> list[Note]:
    """Notes on metadata: keys that no record has, and values that are written otherwise."""
    if not named.metadata:
        return []
    known = _names("key", scope, store)
    said = []
    for key, value in named.metadata[:LOOKED_AT]:
        text = ""
        if value is not None and key not in known:
            text = f"{_SAID['key'][0].format(key)}; {_instead('key', key, known)}"
        elif isinstance(value, str) and not _count(store, scope, Filter(metadata={key: value})):
            for other in {value.lower(), value.upper(), value.capitalize(), value.title()}:
                if _count(store, scope, Filter(metadata={key: other})):
                    text = f"no record has {key}={value}: case counts, and there is {key}={other}"
        if text:
            said.append(Note("metadata", key, "filter", tuple(known), text))
    return said


def _names(field: str, scope: Filter, store: Store) -> list[str]:
    """Names that there are, the commonest first."""
    counts = store.counts(field, scope)
    if field == "path":
        folders: dict[str, int] = {}
        for path in counts:
            for folder in list(lineage(path))[1:]:
                folders[f"{folder}/"] = folders.get(f"{folder}/", 0) + 1
        counts = folders or counts
    return sorted(counts, key=lambda name: (-counts[name], name))


def _instead(field: str, value: str, known: list[str]) -> str:
    """The nearest name, and the foremost."""
    from difflib import get_close_matches  # for the unlucky only

    folded: Mapping[str, str] = {name.casefold(): name for name in reversed(known[:MOST])}
    near = get_close_matches(value.casefold(), folded, n=1)
    more = f" and {len(known) - SHOWN:,} more" if len(known) > SHOWN else ""
    listed = f"{_SAID[field][1]} here: {', '.join(known[:SHOWN]) or 'none'}{more}"
    if field == "type" and (kind := _type_of(value)) is not None:
        return f"a .{value.casefold().lstrip('.')} file is of type:{kind}; {listed}"
    if not near:
        return listed
    name = folded[near[0]]
    meant = name if field == "key" else f"{field}:{name}"
    case = " (case counts)" if field != "tag" and name.casefold() == value.casefold() else ""
    return f"did you mean {meant}{case}? {listed}"


def _type_of(ending: str) -> str | None:
    """What a file with this ending is, as its records' type."""
    from clew.ingest.readers import kind_of

    return kind_of(f".{ending.casefold().lstrip('.')}")


def _written(named: Filter) -> str:
    def pieces() -> Iterator[str]:
        for field, short in (*_FIELDS.items(), ("not_tags", "-tag")):
            yield from (f"{short}:{value}" for value in getattr(named, field))
        for field in ("after", "before"):
            yield from (field for _ in range(getattr(named, field) is not None))
        yield from (key for key, _ in named.metadata)

    found = list(islice(pieces(), LOOKED_AT + 1))
    return ", ".join((*found[:LOOKED_AT], *("…" for _ in found[LOOKED_AT:])))
