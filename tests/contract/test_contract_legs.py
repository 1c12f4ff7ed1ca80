"""The two legs: what they find, how many, in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.filter import Filter
from clew.protocols import Store
from clew.types import Entry, Terms
from entries import MODEL, entry, found, near, terms, unit_rows

Shared = Callable[[Sequence[Entry]], Store]

# ---------------------------------------------------------------------- write, then search


def test_every_search_sees_every_write_before_it(store: Store) -> None:
    for i in range(12):
        store.put([entry(f"r{i:02}", f"zebra number{i}", vectors=[[1, 0]])], model=MODEL)
        expected = [f"r{j:02}" for j in range(i + 1)]
        assert sorted(found(store, "zebra")) == sorted(near(store, [1, 0])) == expected
        assert found(store, f"number{i}")[0] == f"r{i:02}"


def test_another_opening_of_the_store_sees_every_write_as_well(
    open_store: Callable[[], Store],
) -> None:
    one, other = open_store(), open_store()
    for i in range(6):
        writer, reader = (one, other) if i % 2 else (other, one)
        writer.put([entry(f"r{i}", "zebra", vectors=[[1, 0]])], model=MODEL)
        expected = [f"r{j}" for j in range(i + 1)]
        assert found(reader, "zebra") == near(reader, [1, 0]) == expected
    one.delete(["r0"])
    assert found(other, "zebra") == near(other, [1, 0]) == [f"r{j}" for j in range(1, 6)]
    assert found(other, "zebra", ids=["r0", "r1"]) == ["r1"]


def test_a_store_opened_again_has_everything(open_store: Callable[[], Store]) -> None:
    first = open_store()
    first.put([entry("a", "zebra", vectors=[[1, 0]]), entry("b", "walrus")], model=MODEL)
    first.delete(["b"])
    generation = first.changes.generation()
    first.close()
    second = open_store()
    assert found(second, "zebra walrus") == near(second, [1, 0]) == ["a"]
    assert second.changes.generation() == generation


def test_a_record_is_found_by_its_aliases_as_by_its_title(store: Store) -> None:
    given = {"aliases": ["Zweirad", "Drahtesel", "/old/walrus/"], "alias": "pushbike"}
    store.put(
        [
            entry("a", ["the chain", "the saddle"], title="Bicycle", metadata=given),
            entry("b", "bicycle zweirad drahtesel pushbike and walrus"),
        ]
    )
    for name in ("bicycle", "zweirad", "drahtesel saddle", "pushbike"):
        assert found(store, name)[0] == "a"
    assert found(store, "walrus") == ["b"]  # a page's former address is no name
    texts = [text for _, text in store.vectors.texts(store.vectors.pending(MODEL))]
    assert "Bicycle, Zweirad, Drahtesel, pushbike\nthe saddle" in texts
    store.indexes.refresh()
    assert found(store, "zweirad")[0] == "a"
    store.put(
        [entry("a", ["the chain", "the saddle"], title="Bicycle", metadata={"aliases": "velo"})]
    )
    assert found(store, "zweirad") == ["b"] and found(store, "velo") == ["a"]


def test_an_empty_store_finds_nothing(store: Store) -> None:
    assert found(store, "zebra") == []
    assert found(store, '"zebra crossing" -walrus', tags="t") == []
    assert near(store, [1, 0]) == []
    assert store.vectors.pending(MODEL) == []
    assert store.select(Filter(), limit=5) == []


def test_a_query_without_words_finds_nothing_by_keyword(store: Store) -> None:
    store.put([entry("a", "zebra")])
    assert store.keyword(Terms(), Filter(), limit=5) == []
    assert store.keyword(Terms(excluded=(("walrus",),)), Filter(), limit=5) == []


# ---------------------------------------------------------------------- one vote, enough records


def test_a_record_has_one_vote_though_several_of_its_chunks_match(store: Store) -> None:
    store.put(
        [
            entry("a", ["zebra"] * 30, vectors=[[1, 0]] * 30),
            entry("b", ["other words", "zebra"], vectors=[[0, 1], [0.6, 0.8]]),
        ],
        model=MODEL,
    )
    assert sorted(found(store, "zebra")) == ["a", "b"]
    hits = store.nearest(np.array([1, 0], np.float32), Filter(), model=MODEL, limit=5)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 1.0), ("b", pytest.approx(0.6))]


def test_the_candidate_names_its_best_chunk(store: Store) -> None:
    parts = ["plenty of other words here", "zebra zebra", "a zebra among many, many other words"]
    store.put([entry("a", parts, vectors=[[0, 1], [0.6, 0.8], [1, 0]])], model=MODEL)
    keyword = store.keyword(terms("zebra"), Filter(), limit=5)
    vector = store.nearest(np.array([1, 0], np.float32), Filter(), model=MODEL, limit=5)
    texts = [p.text for p in store.passages([*keyword, *vector]) if p]
    assert texts == [parts[1], parts[2]]


def test_limit_counts_records_even_when_one_has_hundreds_of_better_chunks(store: Store) -> None:
    crowd = entry("crowd", ["zebra zebra"] * 400, vectors=[[1, 0]] * 400)
    few = [entry(f"r{i}", f"a zebra and {i} others", vectors=[[0.6, 0.8]]) for i in range(5)]
    store.put([crowd, *few], model=MODEL)
    for limit in (1, 2, 6):
        assert len(found(store, "zebra", limit=limit)) == limit
        assert len(near(store, [1, 0], limit=limit)) == limit
    assert found(store, "zebra", limit=1) == near(store, [1, 0], limit=1) == ["crowd"]


@pytest.mark.parametrize("rare", [1, 7, 600])
def test_as_many_come_back_as_asked_for_however_rare_they_are(store: Store, rare: int) -> None:
    """The rare ones rank last in both legs, behind 3,000 others that the filter keeps out."""
    common = [
        entry(f"c{i:04}", "zebra zebra zebra", vectors=[[1, 0]], collection="common")
        for i in range(3_000)
    ]
    wanted = [
        entry(f"r{i:04}", "one zebra among words", vectors=[[0, 1]], collection="rare", tags=("t",))
        for i in range(rare)
    ]
    store.put([*common, *wanted], model=MODEL)
    expected = [f"r{i:04}" for i in range(rare)]
    for narrowing in ({"collection": "rare"}, {"tags": "t"}, {"collection": "rare", "tags": "t"}):
        assert found(store, "zebra", limit=rare, **narrowing) == expected
        assert near(store, [1, 0], limit=rare, **narrowing) == expected
    for limit in (1, min(10, rare)):
        assert len(found(store, "zebra", limit=limit, collection="rare")) == limit
        assert len(near(store, [1, 0], limit=limit, collection="rare")) == limit


def test_as_many_come_back_as_asked_for_when_exclusions_take_the_best(store: Store) -> None:
    store.put(
        [
            *(entry(f"a{i:03}", "zebra zebra walrus", vectors=[[1, 0]]) for i in range(300)),
            *(entry(f"b{i}", "zebra and many more words", vectors=[[0, 1]]) for i in range(5)),
        ],
        model=MODEL,
    )
    expected = [f"b{i}" for i in range(5)]
    assert found(store, "zebra -walrus", limit=5) == expected
    assert near(store, [1, 0], query="zebra -walrus", limit=5) == expected


# ---------------------------------------------------------------------- phrases, exclusions


ZOO = [
    entry(name, text, vectors=[[1, 0]] * (1 if isinstance(text, str) else len(text)))
    for name, text in {
        "ab": "a quick brown fox jumps",
        "ba": "a brown quick fox jumps",
        "far": "quick is what the brown one is",
        "split": ["it was quick", "brown fox"],
        "other": "nothing of it",
    }.items()
]


@pytest.fixture
def zoo(store: Store) -> Store:
    store.put(ZOO, model=MODEL)
    return store


@pytest.fixture(scope="module")
def cage(shared: Shared) -> Store:
    """The same, for those who only look."""
    return shared(ZOO)


def test_a_phrase_must_occur_in_both_legs(cage: Store) -> None:
    assert found(cage, '"quick brown"') == ["ab"]
    assert near(cage, [1, 0], query='"quick brown"') == ["ab"]
    assert found(cage, 'jumps "brown quick"') == ["ba"]
    assert found(cage, '"quick brown" "fox jumps"') == ["ab"]
    assert found(cage, '"quick brown" "brown quick"') == []
    assert near(cage, [1, 0], query='"nobody said this"') == []


def test_a_quoted_word_must_occur(cage: Store) -> None:
    assert sorted(found(cage, 'quick "fox"')) == ["ab", "ba", "split"]
    assert sorted(near(cage, [1, 0], query='quick "fox"')) == ["ab", "ba", "split"]


def test_an_exclusion_holds_in_both_legs(cage: Store) -> None:
    assert sorted(found(cage, "quick -jumps")) == ["far", "split"]
    assert sorted(near(cage, [1, 0], query="quick -jumps")) == ["far", "other", "split"]
    assert sorted(found(cage, 'quick -"quick brown"')) == ["ba", "far", "split"]
    assert sorted(near(cage, [1, 0], query='quick -"quick brown"')) == [
        "ba",
        "far",
        "other",
        "split",
    ]


def test_an_exclusion_needs_no_other_words_to_hold_in_the_vector_leg(cage: Store) -> None:
    assert sorted(near(cage, [1, 0], query="-fox")) == ["far", "other"]


def test_an_exclusion_is_about_the_record_not_the_chunk(cage: Store) -> None:
    assert "split" not in found(cage, "quick -fox")
    assert "split" not in near(cage, [1, 0], query="quick -fox")


def test_exclusions_phrases_and_filters_hold_together(zoo: Store) -> None:
    zoo.put([entry("tagged", "quick brown owl", tags=("t",), vectors=[[1, 0]])], model=MODEL)
    assert found(zoo, '"quick brown" -fox', tags="t") == ["tagged"]
    assert near(zoo, [1, 0], query='"quick brown" -fox', tags="t") == ["tagged"]
    assert near(zoo, [1, 0], query='"quick brown" -owl', tags="t") == []


def test_plain_words_do_not_narrow_the_vector_leg(cage: Store) -> None:
    assert len(near(cage, [1, 0], query="fox jumps")) == 5


def test_a_phrase_is_seen_in_a_record_written_a_moment_ago(zoo: Store) -> None:
    assert found(zoo, '"quick brown"') == ["ab"]
    zoo.put([entry("new", "one more quick brown thing", vectors=[[1, 0]])], model=MODEL)
    assert sorted(found(zoo, '"quick brown"')) == ["ab", "new"]
    assert sorted(near(zoo, [1, 0], query='"quick brown"')) == ["ab", "new"]
    zoo.delete(["ab"])
    assert found(zoo, '"quick brown"') == near(zoo, [1, 0], query='"quick brown"') == ["new"]


# ---------------------------------------------------------------------- words


def test_records_with_all_words_keep_those_with_some_out(store: Store) -> None:
    both = [entry(f"both{i}", f"zebra walrus and {'more ' * 50}") for i in range(3)]
    one = [entry(f"one{i}", "zebra zebra zebra") for i in range(5)]
    store.put([*one, *both])
    assert sorted(found(store, "zebra walrus", limit=3)) == ["both0", "both1", "both2"]
    assert set(found(store, "zebra walrus", limit=2)) < {"both0", "both1", "both2"}


def test_records_with_any_word_fill_up_what_is_missing(store: Store) -> None:
    store.put([entry("both", "zebra walrus"), entry("z", "zebra"), entry("w", "walrus")])
    store.put([entry(f"x{i}", "something else") for i in range(5)])
    assert found(store, "zebra walrus", limit=3)[0] == "both"
    assert sorted(found(store, "zebra walrus", limit=10)) == ["both", "w", "z"]
    assert sorted(found(store, "zebra unheard-of", limit=10)) == ["both", "z"]


def test_words_are_found_in_their_other_forms(store: Store) -> None:
    store.put([entry("a", "Les cafés naïfs were RUNNING; Ёлка стоит")])
    for query in ("cafe", "CAFÉS", "naif", "run", "runs", "елки", "ЁЛКА"):
        assert found(store, query) == ["a"], query


def test_title_and_heading_are_searched_with_the_words_below(store: Store) -> None:
    store.put([entry("a", ["one", "two"], title="Zebra", headings=["", "Walrus"])])
    for query in ("zebra", "walrus", "zebra two"):
        assert found(store, query) == ["a"]
    (hit,) = store.keyword(terms("walrus"), Filter(), limit=5)
    (passage,) = store.passages([hit])
    assert passage is not None
    assert passage.text == "two"


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("call getUserName() now", ["getUserName", "getusername", "user name", "get"]),
        ("the max_retry_count setting", ["max_retry_count", "retry", "max retry", "count"]),
        ("see protocol-137 for it", ["protocol-137", "protocol 137", "137"]),
        ("since v1.2.3", ["v1.2.3", "1.2.3"]),
        ("part TX-4471-B failed", ["TX-4471-B", "tx-4471-b", "4471"]),
        ("written in C++ and C#", ["c++", "C#"]),
        ("an HTTPServer class", ["HTTPServer", "http server", "server"]),
        ("mail to jo.smith@example.com", ["jo.smith@example.com", "example.com", "smith"]),
    ],
)
def test_compound_identifiers_are_found_whole_and_by_their_parts(
    store: Store, text: str, queries: list[str]
) -> None:
    store.put([entry("a", text), entry("b", "something else altogether")])
    assert [query for query in queries if found(store, query) != ["a"]] == []


def test_a_compound_in_the_query_finds_its_parts_in_the_text(store: Store) -> None:
    store.put([entry("a", "how to get the user name"), entry("b", "get a name")])
    assert found(store, "getUserName", limit=1) == ["a"]


CJK = {
    "kyoto": "京都タワーは京都駅の前にある",
    "tokyo": "東京タワーは港区にある",
    "zh": "我们在北京学习中文",
    "ko": "서울에서 만나요",
    "th": "สวัสดีชาวโลก",
    "en": "Kyoto tower",
}


@pytest.fixture(scope="module")
def scripts(shared: Shared) -> Store:
    return shared([entry(name, text) for name, text in CJK.items()])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("京都", ["kyoto"]),
        ("タワー", ["kyoto", "tokyo"]),
        ("東京タワー", ["tokyo"]),
        ("京都駅", ["kyoto"]),
        ("学习", ["zh"]),
        ("서울", ["ko"]),
        ("ชาวโลก", ["th"]),
        ("駅", ["kyoto"]),  # one character: in the middle,
        ("我", ["zh"]),  # at the beginning,
        ("る", ["kyoto", "tokyo"]),  # and at the end of a run
        ('"京都駅の前"', ["kyoto"]),
        ('"駅京"', []),
        ("京 -駅", ["tokyo", "zh"]),
    ],
)
def test_scripts_without_spaces_are_found_by_any_substring(
    scripts: Store, query: str, expected: list[str]
) -> None:
    limit = len(expected) or 5  # as many as have all of it: any part counts only beyond that
    assert sorted(found(scripts, query, limit=limit)) == sorted(expected)


@pytest.mark.parametrize("character", list("京我る学のはあ文서"))
def test_one_character_finds_every_record_that_has_it(scripts: Store, character: str) -> None:
    assert sorted(found(scripts, character)) == sorted(n for n, t in CJK.items() if character in t)


@pytest.fixture(scope="module")
def lone(shared: Shared) -> Store:
    return shared([entry("a", "a zebra or b")])


@pytest.mark.parametrize(
    "query",
    ["()", "a OR b", "zebra AND", '"', "-", "--", '-"', "*", "zebra*", "[", "\\", "\0", "+-"],
)
def test_no_character_of_a_query_is_special(lone: Store, query: str) -> None:
    assert set(found(lone, query)) <= {"a"}
    assert set(found(lone, query + " zebra")) == {"a"}


# ---------------------------------------------------------------------- order


def test_the_order_is_by_score_and_then_by_id(store: Store) -> None:
    names = [f"n{i}" for i in range(10)]
    random.Random(1).shuffle(names)
    store.put([entry(name, "zebra", vectors=[[1, 0]]) for name in names], model=MODEL)
    store.put([entry("best", "zebra zebra zebra", vectors=[[2, 0]])], model=MODEL)
    for hits in (
        store.keyword(terms("zebra"), Filter(), limit=20),
        store.nearest(np.array([1, 0], np.float32), Filter(), model=MODEL, limit=20),
    ):
        assert [hit.id for hit in hits] == ["best", *sorted(names)]
        assert hits[0].score > hits[1].score
        assert len({hit.score for hit in hits[1:]}) == 1


def test_equal_scores_at_the_cut_are_settled_by_id(store: Store) -> None:
    """Else the same corpus, written in another order, gives another answer."""
    names = [f"n{i:03}" for i in range(200)]
    shuffled = random.Random(2).sample(names, len(names))
    for i in range(0, len(names), 50):
        some = shuffled[i : i + 50]
        store.put([entry(name, "zebra", vectors=[[1, 0]]) for name in some], model=MODEL)
        found(store, "zebra")  # so that it is written in several pieces
    for limit in (1, 10, 30):
        assert found(store, "zebra", limit=limit) == names[:limit]
        assert near(store, [1, 0], limit=limit) == names[:limit]


def test_vector_scores_are_inner_products_in_order(store: Store) -> None:
    rows = unit_rows(300, seed=3)
    store.put([entry(f"r{i:03}", "x", vectors=rows[i : i + 1]) for i in range(300)], model=MODEL)
    for query in unit_rows(5, seed=4):
        hits = store.nearest(query, Filter(), model=MODEL, limit=20)
        scores = rows @ query
        assert [hit.id for hit in hits] == [f"r{i:03}" for i in np.argsort(-scores)[:20]]
        assert [hit.score for hit in hits] == pytest.approx(np.sort(-scores)[:20] * -1, abs=1e-5)


words = st.sampled_from(["zebra", "walrus", "heron", "otter", "lynx", "owl"])
texts = st.lists(words, min_size=1, max_size=8).map(" ".join)


@settings(max_examples=15)
@given(
    corpus=st.lists(texts, min_size=1, max_size=14),
    query=st.lists(words, min_size=1, max_size=3, unique=True).map(" ".join),
    seed=st.integers(0, 9),
)
def test_the_same_corpus_gives_the_same_answer_however_it_came_about(
    fresh: Callable[[], Callable[[], Store]], corpus: list[str], query: str, seed: int
) -> None:
    """One store is written in one go; the other piecemeal, in another order, with detours."""
    straight, winding = fresh()(), fresh()()
    names = [f"r{i:02}" for i in range(len(corpus))]
    straight.put([entry(n, text) for n, text in zip(names, corpus, strict=True)])
    shuffled = random.Random(seed).sample(list(zip(names, corpus, strict=True)), len(corpus))
    for name, text in shuffled:
        winding.put([entry(name, "zebra " + text), entry("x" + name, text)])
        found(winding, query)
    for name, text in shuffled:
        winding.put([entry(name, text)])
        winding.delete(["x" + name])
    # Until then what was deleted counts among a word's holders.
    winding.indexes.refresh(optimise=True)
    one, other = (store.keyword(terms(query), Filter(), limit=100) for store in (straight, winding))
    try:
        assert [c.id for c in one] == [c.id for c in other]
        # A server sums single precision as its segments lie, and six digits are shown of that.
        assert [c.score for c in one] == pytest.approx([c.score for c in other], abs=2e-6)
    finally:
        straight.close()
        winding.close()


def test_deleted_records_have_no_say_in_the_order_once_the_store_is_optimised(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    """Rare words weigh more, so a hundred deleted zebras must not make the living ones common."""
    living = [
        entry(f"{word}{i}", word) for word, n in (("zebra", 4), ("walrus", 6)) for i in range(n)
    ]
    straight, winding = fresh()(), fresh()()
    straight.put(living)
    winding.put([*living, *(entry(f"gone{i}", f"zebra {i}") for i in range(100))])
    found(winding, "zebra")
    winding.delete([f"gone{i}" for i in range(100)])
    winding.indexes.refresh(optimise=True)
    try:
        assert found(straight, "zebra walrus")[0] == "zebra0"
        assert found(winding, "zebra walrus") == found(straight, "zebra walrus")
    finally:
        straight.close()
        winding.close()


def test_reach_is_more_than_any_passage_scores_and_grows_with_rare_words(store: Store) -> None:
    texts = ["keel bolts", "keel paint", "keel rot", "mast step"]
    store.put([entry(f"r{i}", text) for i, text in enumerate(texts)])
    store.indexes.refresh()
    both, rare, common = terms("keel bolts"), terms("bolts"), terms("keel")
    assert found_score(store, both) <= store.indexes.reach(both, Filter())
    assert (
        store.indexes.reach(common, Filter())
        < store.indexes.reach(rare, Filter())
        < store.indexes.reach(both, Filter())
    )
    assert store.indexes.reach(Terms(), Filter()) == 0.0


def found_score(store: Store, wanted: Terms) -> float:
    return store.keyword(wanted, Filter(), limit=1)[0].score


def test_under_a_filter_words_count_by_how_rare_they_are_within_it(store: Store) -> None:
    """A name in every turn of one conversation says nothing there, however rare it is elsewhere."""
    turns = [entry(f"a{i:02}", f"caroline said hello {i}", collection="a") for i in range(40)]
    rare = entry("answer", "the keel is lead and not iron", collection="a")
    others = [entry(f"b{i:03}", f"keel number {i}", collection="b") for i in range(400)]
    store.put([*turns, rare, *others])
    assert found(store, "caroline keel", limit=1, collection="a") == ["answer"]
    assert found(store, "caroline keel", limit=1)[0].startswith("a")
    inside, everywhere = Filter(collection="a"), Filter()
    assert store.indexes.reach(terms("keel"), inside) > store.indexes.reach(
        terms("keel"), everywhere
    )
    assert store.indexes.reach(terms("caroline"), inside) < store.indexes.reach(
        terms("caroline"), everywhere
    )
    (best,) = store.keyword(terms("caroline keel"), inside, limit=1)
    assert 0 < best.score <= store.indexes.reach(terms("caroline keel"), inside)


def test_words_count_anew_when_what_a_filter_leaves_has_changed(store: Store) -> None:
    turns = [entry(f"a{i:02}", "caroline said hello", collection="a") for i in range(40)]
    others = [entry(f"b{i:03}", "keel", collection="b") for i in range(400)]
    store.put([*turns, entry("answer", "keel of lead", collection="a"), *others])
    inside = Filter(collection="a")
    store.keyword(terms("keel"), inside, limit=1)
    before = store.indexes.reach(terms("keel"), inside)
    store.put([entry(f"c{i}", "keel again", collection="a") for i in range(60)])
    store.keyword(terms("keel"), inside, limit=1)
    assert store.indexes.reach(terms("keel"), inside) < before


def test_words_that_must_all_occur_may_be_in_several_passages(store: Store) -> None:
    many = [entry(f"c{i:03}", "common heron words") for i in range(80)]
    store.put([*many, entry("both", ["a rare walrus", "a common otter"]), entry("one", "rare")])
    store.indexes.refresh(optimise=True)
    store.put([entry("late", ["common again", "rare too"])])  # not on disk yet
    assert sorted(found(store, '"rare" "common"')) == ["both", "late"]
    assert found(store, '"common" "rare" "walrus"') == ["both"]
    assert found(store, '"rare" "common" "heron"') == []
    assert found(store, '"common" "nowhere"') == []
    assert len(found(store, '"common" "heron"')) == 80
