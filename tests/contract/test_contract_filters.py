"""Filters, in both legs and in `select`: each kind by example, all kinds against a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import keeps

from clew.errors import InputError
from clew.filter import Filter
from clew.protocols import Store
from clew.types import Chunk, Entry, Record, Vectors
from entries import MODEL, entry, found, near, terms

DAY = 86_400.0

# ---------------------------------------------------------------------- by example


ROWS: list[dict[str, Any]] = [
    {
        "id": "n1",
        "collection": "notes",
        "type": "markdown",
        "domain": "work",
        "tags": ("risk", "trading"),
        "path": "projects/alpha/plan.md",
        "importance": 0.9,
        "updated_at": 10 * DAY,
        "created_at": 2 * DAY,
        "metadata": {"status": "open", "effort": 3, "done": False, "who": ["ann", "bob"]},
    },
    {
        "id": "n2",
        "collection": "notes",
        "type": "text",
        "domain": "personal",
        "tags": ("risk",),
        "path": "projects/beta/deep/er/plan.md",
        "importance": 0.5,
        "updated_at": 20 * DAY,
        "created_at": 5 * DAY,
        "ended_at": 25 * DAY,
        "metadata": {"status": "closed", "effort": 8.5, "done": True, "who": ["bob"]},
    },
    {
        "id": "c1",
        "collection": "code",
        "type": "code",
        "path": "projects/main.py",
        "importance": 0.1,
        "updated_at": 30 * DAY,
        "created_at": 30 * DAY,
        "metadata": {"status": None, "effort": "large", "nested": {"a": 1}},
    },
    {
        "id": "m1",
        "collection": "memory",
        "domain": "work",
        "updated_at": 40 * DAY,
        "created_at": -DAY,
    },
]
LIBRARY = [entry(content="zebra", vectors=[[1, 0]], **row) for row in ROWS]


@pytest.fixture
def library(store: Store) -> Store:
    store.put(LIBRARY, model=MODEL)
    return store


@pytest.fixture(scope="module")
def shelf(shared: Callable[[Sequence[Entry]], Store]) -> Store:
    """The same, for those who only read it."""
    return shared(LIBRARY)


EXAMPLES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["c1", "m1", "n1", "n2"]),
    ({"collection": "notes"}, ["n1", "n2"]),
    ({"collection": ["code", "memory", "none such"]}, ["c1", "m1"]),
    ({"collection": "note"}, []),
    ({"type": "markdown"}, ["n1"]),
    ({"type": ["text", "code"]}, ["c1", "m1", "n2"]),
    ({"domain": "work"}, ["m1", "n1"]),
    ({"domain": ""}, ["c1"]),
    ({"not_domain": "personal"}, ["c1", "m1", "n1"]),
    ({"not_domain": ["personal", ""]}, ["m1", "n1"]),
    ({"domain": ["work", "personal"], "not_domain": "personal"}, ["m1", "n1"]),
    ({"tags": "risk"}, ["n1", "n2"]),
    ({"tags": ["trading", "unheard-of"]}, ["n1"]),
    ({"tags": "#Risk"}, ["n1", "n2"]),
    ({"tags": "ris"}, []),
    ({"tags": "risk/"}, []),
    ({"not_tags": "#Trading"}, ["c1", "m1", "n2"]),
    ({"not_tags": ["risk", "unheard-of"]}, ["c1", "m1"]),
    ({"tags": "risk", "not_tags": "trading"}, ["n2"]),
    ({"tags_all": ["risk", "trading"]}, ["n1"]),
    ({"tags_all": ["risk", "unheard-of"]}, []),
    ({"tags": ["risk"], "tags_all": ["TRADING"]}, ["n1"]),
    ({"path": "projects/"}, ["c1", "n1", "n2"]),
    ({"path": "projects/alpha"}, ["n1"]),
    ({"path": "./projects/alpha"}, ["n1"]),
    ({"path": "rojects/"}, []),
    ({"path": ["projects/alpha/", "projects/main.py"]}, ["c1", "n1"]),
    ({"path": "projects/*.py"}, ["c1"]),
    ({"path": "projects/*"}, ["c1"]),
    ({"path": "projects/*/plan.md"}, ["n1"]),
    ({"path": "projects/**"}, ["c1", "n1", "n2"]),
    ({"path": "projects/**/*.md"}, ["n1", "n2"]),
    ({"path": "**/plan.md"}, ["n1", "n2"]),
    ({"path": "**/main.py"}, ["c1"]),
    ({"path": "projects/**/main.py"}, ["c1"]),
    ({"path": "projects/beta/**/**/plan.md"}, ["n2"]),
    ({"path": "*.md"}, []),
    ({"path": "projects/ma?n.py"}, ["c1"]),
    ({"path": "projects?main.py"}, []),
    ({"path": "projects/ma[hij]n.py"}, ["c1"]),
    ({"path": "projects/ma[a-i]n.py"}, ["c1"]),
    ({"path": "projects/ma[!a-i]n.py"}, []),
    ({"path": "projects/ma[!x]n.py"}, ["c1"]),
    ({"path": "projects[!x]main.py"}, []),
    ({"path": "projects[.-0]main.py"}, []),
    ({"path": "projects/[ab]*/**"}, ["n1", "n2"]),
    ({"path": "projects/[ab"}, []),
    ({"within": "projects/alpha/"}, ["n1"]),
    ({"within": "projects/alp"}, []),
    ({"within": ["projects/alpha", "projects/beta/deep"]}, ["n1", "n2"]),
    ({"within": "projects", "path": "**/main.py"}, ["c1"]),
    ({"within": "p*"}, []),
    ({"not_within": "projects/alpha/"}, ["c1", "m1", "n2"]),
    ({"not_within": ["projects/beta/deep", "nowhere/"]}, ["c1", "m1", "n1"]),
    ({"not_within": "projects"}, ["m1"]),
    ({"not_within": "projects/alp"}, ["c1", "m1", "n1", "n2"]),
    ({"not_within": "nowhere", "not_domain": "Personal "}, ["c1", "m1", "n1"]),
    ({"within": "projects", "not_within": "projects/alpha"}, ["c1", "n2"]),
    ({"importance_min": 0.5}, ["m1", "n1", "n2"]),
    ({"importance_max": 0.5}, ["c1", "m1", "n2"]),
    ({"importance_min": 0.4, "importance_max": 0.6}, ["m1", "n2"]),
    ({"after": 20 * DAY}, ["c1", "m1", "n2"]),
    ({"before": 20 * DAY}, ["n1"]),
    ({"after": 20 * DAY, "before": 40 * DAY}, ["c1", "n2"]),
    ({"created_after": 5 * DAY}, ["c1", "n2"]),
    ({"created_before": 5 * DAY}, ["m1", "n1"]),
    ({"created_after": -DAY, "created_before": 2 * DAY}, ["m1"]),
    ({"active": True}, ["c1", "m1", "n1"]),
    ({"active": False}, ["n2"]),
    ({"as_of": -2 * DAY}, []),
    ({"as_of": -DAY}, ["m1"]),
    ({"as_of": 24 * DAY}, ["m1", "n1", "n2"]),
    ({"as_of": 25 * DAY}, ["m1", "n1"]),
    ({"as_of": 99 * DAY}, ["c1", "m1", "n1"]),
    ({"as_of": 24 * DAY, "active": False}, ["n2"]),
    ({"ids": ["n1", "m1", "nobody"]}, ["m1", "n1"]),
    ({"ids": "nobody"}, []),
    ({"metadata": {"status": "open"}}, ["n1"]),
    ({"metadata": {"status": "OPEN"}}, []),
    ({"metadata": {"status": ["open", "closed"]}}, ["n1", "n2"]),
    ({"metadata": {"effort": ["large", 3, True]}}, ["c1", "n1"]),
    ({"metadata": {"effort": 3}}, ["n1"]),
    ({"metadata": {"effort": 3.0}}, ["n1"]),
    ({"metadata": {"effort": "3"}}, []),
    ({"metadata": {"effort": 8.5}}, ["n2"]),
    ({"metadata": {"done": True}}, ["n2"]),
    ({"metadata": {"done": False}}, ["n1"]),
    ({"metadata": {"status": None}}, ["c1", "m1"]),
    ({"metadata": {"nested": None}}, ["m1", "n1", "n2"]),
    ({"metadata": {"who": "bob"}}, ["n1", "n2"]),
    ({"metadata": {"who": "ann"}}, ["n1"]),
    ({"metadata": {"effort": {"gte": 3}}}, ["n1", "n2"]),
    ({"metadata": {"effort": {"gt": 3}}}, ["n2"]),
    ({"metadata": {"effort": {"gt": 3, "lt": 8.5}}}, []),
    ({"metadata": {"effort": {"gt": 2.9, "lte": 8.5}}}, ["n1", "n2"]),
    ({"metadata": {"effort": {"gte": "a"}}}, ["c1"]),
    ({"metadata": {"effort": {"lt": "z"}}}, ["c1"]),
    ({"metadata": {"status": "open", "effort": {"lte": 5}, "who": "bob"}}, ["n1"]),
    ({"collection": "notes", "tags": "risk", "path": "**/deep/**", "after": DAY}, ["n2"]),
    ({"collection": "notes", "type": "code"}, []),
]


@pytest.mark.parametrize(("wanted", "expected"), EXAMPLES, ids=[str(e[0]) for e in EXAMPLES])
def test_a_filter_holds_in_both_legs_and_in_select(
    shelf: Store, wanted: dict[str, Any], expected: list[str]
) -> None:
    assert [r.id for r in shelf.select(Filter(**wanted), limit=9)] == expected
    assert found(shelf, "zebra", **wanted) == expected
    assert near(shelf, [1, 0], **wanted) == expected


def test_times_in_a_filter_may_be_written_as_dates(library: Store) -> None:
    library.put([entry("now", "zebra", updated_at=1_800_000_000.0)])
    assert found(library, "zebra", after="2027-01-01") == ["now"]
    assert "now" not in found(library, "zebra", before="2027-01-01")


def test_a_changed_record_changes_sides_at_once(library: Store) -> None:
    """The same filters are asked before and after: an answer kept from before would show."""
    wanted: list[dict[str, Any]] = [
        {"collection": "notes"},
        {"tags": "risk"},
        {"path": "projects/**"},
        {"importance_min": 0.8},
        {"before": 15 * DAY},
        {"metadata": {"status": "open"}},
        {"not_domain": "personal"},
        {"ids": "n1"},
    ]
    before = [found(library, "zebra", **w) for w in wanted]
    assert all("n1" in names for names in before)
    library.put(
        [entry("n1", "zebra", domain="personal", updated_at=99 * DAY, vectors=[[1, 0]])],
        model=MODEL,
    )
    for w in wanted[:-1]:
        assert "n1" not in found(library, "zebra", **w)
        assert "n1" not in near(library, [1, 0], **w)
    library.delete(["n1"])
    assert found(library, "zebra", ids="n1") == near(library, [1, 0], ids="n1") == []
    library.put([entry("n3", "zebra", collection="notes", vectors=[[1, 0]])], model=MODEL)
    assert found(library, "zebra", collection="notes") == ["n2", "n3"]
    assert near(library, [1, 0], collection="notes") == ["n2", "n3"]


def test_a_filter_may_name_any_number_of_ids(store: Store) -> None:
    store.put([entry("a", "zebra", vectors=[[1, 0]]), entry("b", "zebra")], model=MODEL)
    many = ["a", *(f"nobody{i}" for i in range(300_000))]
    assert found(store, "zebra", ids=many) == near(store, [1, 0], ids=many) == ["a"]
    assert [record.id for record in store.select(Filter(ids=many), limit=9)] == ["a"]


def test_a_number_too_large_for_the_database_is_compared_all_the_same(shelf: Store) -> None:
    assert found(shelf, "zebra", metadata={"effort": 10**30}) == []
    assert found(shelf, "zebra", metadata={"effort": {"lt": 10**30}}) == ["n1", "n2"]
    assert found(shelf, "zebra", metadata={"effort": {"gt": -(10**30)}}) == ["n1", "n2"]


@pytest.mark.parametrize(
    "bounds", [{}, {"gte": None}, {"gte": [1]}, {"gte": 1, "lt": "b"}, {"gte": float("nan")}]
)
def test_a_range_that_makes_no_sense_is_an_input_error(shelf: Store, bounds: Any) -> None:
    with pytest.raises(InputError):
        found(shelf, "zebra", metadata={"effort": bounds})


# ---------------------------------------------------------------------- against the reference

names = st.sampled_from
folders = names(["projects", "notes", "a", "ab", "é", "x.y"])
files = names(
    ["plan.md", "a.md", "b.md", "ab.txt", "c1.py", "c2.py", "[x].md", ".hidden", "京都.md"]
)
paths = st.builds(
    lambda inner, file: "/".join([*inner, file]), st.lists(folders, max_size=3), files
)
segments = folders | names(
    ["*", "**", "?", "a*", "*b", "[ab]", "[!a]*", "*.?*", "x.y", "**", "p*s", "[a-c]*"]
)
last_segments = files | names(
    [
        "*",
        "**",
        "*.md",
        "?.md",
        "[ab].md",
        "[!a].md",
        "c[0-9].py",
        "c[!1].py",
        "*.[pt]*",
        "*京*",
        "[[]x].md",
    ]
)
globs = st.builds(
    lambda inner, file: "/".join([*inner, file]), st.lists(segments, max_size=3), last_segments
)
prefixes = st.builds(lambda path, n: path[:n], paths, st.integers(1, 12))
scalars = names(["open", "closed", "", 0, 1, 2, 3, 2.5, -1, 1e9])
metadata = st.fixed_dictionaries(
    {},
    optional={
        "status": scalars | st.none(),
        "effort": scalars | st.lists(scalars, min_size=1, max_size=3),
        "done": st.booleans() | st.none(),
        "who": st.lists(names(["ann", "bob", "cy"]), min_size=1, max_size=3),
    },
)
tags = names(["risk", "Risk", "#risk", "risk/Small", "risk/small/a", "risk0", "straße", "STRASSE"])
moments = st.integers(0, 6).map(lambda day: day * DAY)
shares = st.integers(0, 4).map(lambda n: n / 4)


@st.composite
def records(draw: st.DrawFn, id: str) -> Record:
    return Record(
        id=id,
        content="zebra " + draw(names(["", "walrus", "zebra zebra", "and many more words"])),
        path=draw(st.none() | paths),
        collection=draw(names(["notes", "code", "memory"])),
        type=draw(names(["text", "markdown", "code"])),
        domain=draw(names(["", "work", "personal"])),
        tags=tuple(draw(st.lists(tags, max_size=3))),
        importance=draw(shares),
        created_at=draw(moments),
        updated_at=draw(moments),
        ended_at=draw(st.none() | moments),
        valid_from=draw(st.none() | moments),
        valid_to=draw(st.none() | moments),
        metadata=draw(metadata),
    )


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[str | list[str]]:
    return values | st.lists(values, min_size=1, max_size=3)


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    operators = names(["gt", "gte", "lt", "lte"])
    return st.dictionaries(operators, values, min_size=1, max_size=2)


numbers = names([0, 1, 2, 3, 2.5, -1, 1e9])
strings = names(["", "closed", "m", "open"])
conditions = scalars | st.none() | ranges(numbers) | ranges(strings)


@st.composite
def filters(draw: st.DrawFn, ids: Sequence[str]) -> dict[str, Any]:
    """Arguments of a Filter: few at a time, so that something is left over."""
    possible: dict[str, st.SearchStrategy[Any]] = {
        "collection": some(names(["notes", "code", "memory"])),
        "type": some(names(["text", "markdown", "code"])),
        "domain": some(names(["", "work", "personal"])),
        "not_domain": some(names(["", "work", "personal"])),
        "tags": some(tags),
        "tags_all": some(tags),
        "not_tags": some(tags),
        "path": some(globs | prefixes),
        "within": some(st.builds(lambda inner: "/".join(inner), st.lists(folders, min_size=1))),
        "not_within": some(st.builds(lambda inner: "/".join(inner), st.lists(folders, min_size=1))),
        "importance_min": shares,
        "importance_max": shares,
        "after": moments,
        "before": moments,
        "created_after": moments,
        "created_before": moments,
        "active": st.booleans(),
        "as_of": moments.map(lambda moment: moment - 1) | moments,
        "valid_at": moments.map(lambda moment: moment - 1) | moments,
        "ids": some(names([*ids, "nobody"])),
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "status": conditions,
                "effort": conditions,
                "done": st.booleans() | st.none(),
                "who": names(["ann", "bob", None]),
            },
        ),
    }
    chosen = draw(st.lists(names(sorted(possible)), max_size=3, unique=True))
    wanted = {name: draw(possible[name]) for name in chosen}
    if wanted.get("importance_min", 0) > wanted.get("importance_max", 1):
        del wanted["importance_max"]
    for of in ("", "created_"):
        if wanted.get(f"{of}after", -1) >= wanted.get(f"{of}before", 1e9):
            del wanted[f"{of}before"]
    return wanted


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Record], list[Record], list[str], list[dict[str, Any]]]:
    """A corpus, what becomes of it (records changed, ids deleted), and filters to ask for."""
    ids = [f"r{i:02}" for i in range(draw(st.integers(1, 14)))]
    corpus = [draw(records(name)) for name in ids]
    changed = [
        draw(records(name))
        for name in draw(st.lists(names([*ids, "new1", "new2"]), max_size=4, unique=True))
    ]
    deleted = draw(st.lists(names(ids), max_size=3, unique=True))
    wanted = draw(st.lists(filters([*ids, "new1"]), min_size=4, max_size=12))
    return corpus, changed, deleted, wanted


def stored(record: Record) -> Entry:
    return Entry(record, (Chunk(0, len(record.content)),), vectors=vector_of(record)[None, :])


def vector_of(record: Record) -> Vectors:
    """Small whole numbers: sums are exact, so scores can be compared for equality."""
    row = [len(record.content), len(record.tags), len(record.path or ""), ord(record.id[-1])]
    return np.array(row, np.float32)


QUERY = np.array([1, -2, 3, 1], np.float32)


@settings(max_examples=30)
@given(cases())
def test_any_filter_keeps_exactly_what_the_reference_keeps(
    fresh: Callable[[], Callable[[], Store]],
    case: tuple[list[Record], list[Record], list[str], list[dict[str, Any]]],
) -> None:
    corpus, changed, deleted, wanted = case
    store = fresh()()
    try:
        store.put([stored(record) for record in corpus], model=MODEL)
        truth = {record.id: record for record in corpus}
        _compare(store, truth, wanted)
        if changed:
            store.put([stored(record) for record in changed], model=MODEL)
        store.delete(deleted)
        truth |= {record.id: record for record in changed}
        for name in deleted:
            truth.pop(name, None)
        _compare(store, truth, wanted)
    finally:
        store.close()


def _compare(store: Store, truth: dict[str, Record], wanted: list[dict[str, Any]]) -> None:
    for arguments in wanted:
        wish = Filter(**arguments)
        kept = {name for name, record in truth.items() if keeps(arguments, record)}
        assert [r.id for r in store.select(wish, limit=99)] == sorted(kept), arguments
        assert {name for name, record in truth.items() if wish.allows(record)} == kept, arguments
        assert {c.id for c in store.keyword(terms("zebra"), wish, limit=99)} == kept, arguments
        ranked = sorted(kept, key=lambda name: (-float(vector_of(truth[name]) @ QUERY), name))
        hits = store.nearest(QUERY, wish, model=MODEL, limit=99)
        assert [hit.id for hit in hits] == ranked, arguments
        if len(kept) > 1:
            few = len(kept) - 1
            assert len(store.keyword(terms("zebra"), wish, limit=few)) == few
            assert len(store.nearest(QUERY, wish, model=MODEL, limit=few)) == few
        without = {name for name in kept if "walrus" not in truth[name].content}
        query = terms("zebra -walrus")
        assert {c.id for c in store.keyword(query, wish, limit=99)} == without
        leg = store.nearest(QUERY, wish, model=MODEL, limit=99, terms=query)
        assert {c.id for c in leg} == without


def test_the_reference_itself_can_tell_records_apart() -> None:
    """Else the comparison above would prove nothing."""
    record = Record("r", "zebra", path="projects/a/plan.md", tags=("risk",), metadata={"n": [1, 5]})
    assert keeps(
        {"path": "projects/**/*.md", "tags": "#RISK", "metadata": {"n": {"gt": 4}}}, record
    )
    assert not keeps({"path": "projects/*.md"}, record)
    assert not keeps({"metadata": {"n": {"gt": 5}}}, record)
    assert not keeps({"tags_all": ["risk", "x"]}, record)
    assert not keeps({"metadata": {"n": None}}, record)
    assert not keeps({"path": "p"}, replace(record, path=None))
    true = replace(record, created_at=9 * DAY, valid_from=DAY, valid_to=2 * DAY)
    for name in ("as_of", "valid_at"):
        assert keeps({name: DAY}, true)
        assert not keeps({name: DAY - 1}, true)
        assert not keeps({name: 2 * DAY}, true)
    assert keeps({"valid_at": 0.0}, replace(true, valid_from=None))
    assert not keeps({"as_of": DAY}, replace(true, valid_from=None))
    ended = replace(record, created_at=0.0, ended_at=DAY)
    assert keeps({"as_of": 0.0, "active": False, "created_before": 1.0}, ended)
    assert not keeps({"as_of": DAY}, ended)
    assert not keeps({"as_of": -1.0}, ended)
    assert not keeps({"active": True}, ended)


def test_as_many_conditions_as_a_filter_may_have_are_answered(store: Store) -> None:
    keys = {f"k{i}": i for i in range(200)}
    tags = tuple(f"t{i}" for i in range(200))
    store.put([entry("a", "x", metadata=keys, tags=tags, path="p1/a.md"), entry("b", "x")])
    folders = [f"p{i}" for i in range(400)]
    wanted = Filter(
        metadata=keys,
        tags_all=tags,
        path=[f"{f}/*.md" for f in folders],
        within=folders,
        not_within=[f"q{i}" for i in range(400)],
    )
    assert [record.id for record in store.select(wanted, limit=9)] == ["a"]
    assert store.count(wanted) == 1
