"""What callers may give: odd things are kept as they are, wrong ones refused before any write."""

from __future__ import annotations

import datetime as dt
import math
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew

from hashing import HashingEmbedder

DAY = 86_400.0
AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def nested(depth: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    inner = whole
    for _ in range(depth):
        inner["in"] = {}
        inner = inner["in"]
    return whole


# ---------------------------------------------------------------- what is kept

TEXTS = [
    "Ana mag Äpfel und Straßenbahnen",
    "Ана любит яблоки",
    "アナは林檎が好きです",
    "安娜喜欢苹果",
    "아나는 사과를 좋아해요",
    "آنا تحب التفاح",
    "אנה אוהבת תפוחים",
    "अना को सेब पसंद हैं",
    "อานาชอบแอปเปิล",
    "Ana \U0001f34e loves \U0001f469\u200d\U0001f4bb apples",
    "\u202eelppa na\u202c, right to left",
    "nul \0 in between apples",
    "tab\tand\nlines\r\nof apples",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_any_script_comes_back_as_it_was_and_by_its_own_words(
    plain: clew.Memory, text: str
) -> None:
    made = plain.remember(text)
    plain.remember("something else altogether")
    (found,) = [m for m in plain.recall(text) if m.id == made.id]
    assert found.content == text
    assert plain.remember(text).status == "duplicate"


def test_two_ways_to_write_one_letter_find_each_other_and_are_consolidated(
    plain: clew.Memory,
) -> None:
    """What was said is kept as it was said; that it is the same is what consolidation finds."""
    composed, decomposed = (
        unicodedata.normalize(form, "Zoë drinks café") for form in ("NFC", "NFD")
    )
    assert composed != decomposed
    for text in (composed, decomposed):
        assert plain.remember(text).status == "created"
    assert len(plain.recall(composed)) == len(plain.recall(decomposed)) == 2
    assert len(plain.consolidate()) == 1
    assert len(plain.recall("café")) == 1


def test_the_longest_text_is_kept_and_one_character_more_is_not(memory: clew.Memory) -> None:
    words = "the keel of boat number seven is red. "
    longest = (words * (1_000_000 // len(words) + 1))[:999_990] + "zyzzyva end"[:10]
    assert len(longest) == 1_000_000
    made = memory.remember(longest)
    assert made.embedded
    assert memory.recall("zyzzyva")[0].id == made.id
    assert memory.remember(longest).status == "duplicate"
    with pytest.raises(clew.InputError, match="too long"):
        memory.remember(longest + "x")
    assert memory.stats()["memories"] == 1


@pytest.mark.parametrize(
    "name",
    ["a\nb", " a ", "x" * 500, "é", "\U0001f642", "'; DROP TABLE records; --", "a/b:c*?[", "%_"],
)
def test_an_id_may_be_any_text(memory: clew.Memory, name: str) -> None:
    assert memory.remember("the boat has a keel", id=name).id == name
    assert [m.id for m in memory.recall("keel")] == [name]
    assert memory.supersede(name, "the boat has a mast").status == "created"
    kept = memory.get(name)
    assert kept is not None
    assert kept.reason == "superseded"
    assert memory.forget(name, hard=True)
    assert memory.get(name) is None


def test_metadata_comes_back_as_json_has_it_and_apart_from_clews_own_fields(
    memory: clew.Memory,
) -> None:
    told = {
        "type": "mine",
        "path": "a/b",
        "tags": ["x"],
        "collection": "c",
        "id": 7,
        "content": "other",
        "importance": 9,
        "nested": {"a": [1, {"b": None}]},
        "pair": (1, 2),
        "": "no name",
        3: "number",
        **{f"k{i}": i for i in range(1000)},
    }
    memory.remember("the boat has a keel", metadata=told)
    (found,) = memory.recall("keel", metadata={"type": "mine", "k999": {"gt": 998}})
    assert found.type == "semantic"
    assert found.content == "the boat has a keel"
    assert found.metadata["type"] == "mine"
    assert found.metadata["pair"] == [1, 2]
    assert found.metadata["3"] == "number"
    assert len(found.metadata) == len(told)
    assert memory.recall("keel", type_filter="episodic") == []
    # the very same, told again: nothing is new in it
    assert memory.remember("the boat has a keel", metadata=told).status == "duplicate"


def test_tags_are_found_however_they_are_written(memory: clew.Memory) -> None:
    memory.remember("the boat has a keel", tags=["#Boat", " boat ", "Two Words", "straße", "", "#"])
    (found,) = memory.recall("keel")
    assert set(found.tags) == {"boat", "two words", "strasse"}
    for tag in ("boat", "#BOAT", " Boat", "two words", "STRASSE", {"boat"}, ["none", "boat"]):
        assert len(memory.recall("keel", tags=tag)) == 1, tag  # type: ignore[arg-type]
    assert memory.recall("keel", tags="two") == []


def test_numbers_of_numpy_are_numbers(plain: clew.Memory) -> None:
    plain.remember(
        "the boat has a keel",
        importance=np.float32(0.5),  # type: ignore[arg-type]
        created_at=np.int64(5),  # type: ignore[arg-type]
        embedding=np.ones(4, np.float16),
    )
    (found,) = plain.recall("keel", k=np.int64(3))  # type: ignore[arg-type]
    assert (found.importance, found.created_at) == (0.5, 5.0)


@pytest.mark.parametrize(
    "name", ["हिन्दी", "ไทย", "日本", "Zoë", "a b", "team/ana@home:1+2", "x" * 200]
)
def test_a_namespace_may_be_of_any_script(memory: clew.Memory, name: str) -> None:
    for form in ("NFC", "NFD"):
        memory.remember("the boat has a keel", namespace=unicodedata.normalize(form, name))
    decomposed = unicodedata.normalize("NFD", name)
    assert len(memory.recall("keel", namespace=decomposed, record_access=False)) == 1
    (found,) = memory.latest(namespace=name)
    assert memory.get(found.id, namespace=decomposed) == found
    assert memory.recall("keel") == []


# ---------------------------------------------------------------- moments


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (AT, AT.timestamp()),
        (AT.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))), AT.timestamp()),
        ("2026-03-01T12:00Z", AT.timestamp()),
        ("2026-03-01T17:30+05:30", AT.timestamp()),
        ("2026-03-01", AT.timestamp() - DAY / 2),
        (dt.date(2026, 3, 1), AT.timestamp() - DAY / 2),
        ("1969-12-31", -DAY),
        (0, 0.0),
        (-1.5, -1.5),
        ("2150-01-01T00:00Z", 5_680_281_600.0),
        (dt.datetime.min.replace(tzinfo=dt.UTC), -62_135_596_800.0),
        ("9999-12-31", 253_402_214_400.0),
    ],
)
def test_a_moment_is_the_same_wherever_it_is_told(
    memory: clew.Memory, monkeypatch: pytest.MonkeyPatch, given: Any, seconds: float
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        made = memory.remember("the boat has a keel", created_at=given)
        (found,) = memory.recall("keel", time_range=(given, given), recency_boost=1.0)
        assert found.created_at == seconds
        assert memory.recall("keel", as_of=given)[0].id == made.id
        day = dt.datetime.fromtimestamp(seconds, dt.UTC).date().isoformat()
        assert memory.context_pack("keel").startswith(f"- [{day}]")
        assert memory.evict(0)[0]["id"] == made.id
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_range_of_days_has_the_last_one_in_it(memory: clew.Memory) -> None:
    for day, hour in ((1, 0), (1, 23), (2, 9), (3, 0)):
        memory.remember(
            f"keel {day} {hour}", created_at=dt.datetime(2026, 3, day, hour, tzinfo=dt.UTC)
        )

    def count(*bounds: Any) -> int:
        return len(memory.recall("keel", k=9, time_range=bounds))

    assert count("2026-03-01", "2026-03-01") == 2
    assert count(dt.date(2026, 3, 1), dt.date(2026, 3, 2)) == 3
    assert count("2026-03-01T23:00Z", "2026-03-02T09:00Z") == 2  # both moments included
    assert count("2026-03-03", None) == 1
    assert count(None, "2026-02-28") == 0


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"created_at": 1.7e12}, "in seconds"),
        ({"created_at": 1e300}, "in seconds"),
        ({"created_at": math.nan}, "is not a date"),
        ({"created_at": dt.datetime.max.replace(tzinfo=dt.UTC)}, "years 1 to 9999"),
        ({"created_at": np.datetime64("2026-01-01")}, "must be a date"),
        ({"created_at": True}, "must be a date"),
        ({"importance": True}, "importance must be"),
        ({"importance": None}, "importance must be"),
        ({"metadata": nested(100_000)}, "nested too deeply"),
        ({"metadata": {"n": 10**400}}, "too large"),
        ({"metadata": {"n": math.inf}}, "metadata cannot be kept"),
        ({"metadata": {"n": "\ud800"}}, "half a character"),
        ({"metadata": {"n": {1, 2}}}, "metadata cannot be kept"),
        ({"tags": ["a\0b"]}, "NUL"),
        ({"tags": ["\ud800"]}, "half a character"),
        ({"tags": b"x"}, "tags must be"),
        ({"id": "a\0b"}, "NUL"),
        ({"id": "\ud800"}, "half a character"),
        ({"id": "x" * 501}, "1 to 500"),
        ({"id": 7}, "an id is a text"),
        ({"namespace": None}, "is no namespace"),
        ({"namespace": "\u0301a"}, "is no namespace"),
        ({"namespace": "a\0"}, "is no namespace"),
        ({"namespace": "x" * 201}, "is no namespace"),
        ({"embedding": [[1, 2], [3]]}, "one row of numbers"),
        ({"embedding": [1e39] * 4}, "NaN or infinity"),
        ({"embedding": 5}, "one row of numbers"),
    ],
)
def test_wrong_input_is_refused_also_among_thousands_and_nothing_is_written(
    plain: clew.Memory, wrong: dict[str, Any], said: str
) -> None:
    good = [{"content": f"fine {i}"} for i in range(1500)]
    with pytest.raises(clew.InputError, match=said):
        plain.remember_many([*good, {"content": "last", **wrong}])
    assert plain.stats()["memories"] == 0


def test_an_id_that_another_text_has_is_refused_also_among_thousands(plain: clew.Memory) -> None:
    plain.remember("the boat has a keel", id="a")
    good = [{"content": f"fine {i}", "id": f"f{i}"} for i in range(1500)]
    for bad in ({"content": "a mast", "id": "a"}, {"content": "a mast", "id": "f3"}):
        with pytest.raises(clew.InputError, match="is taken by another text"):
            plain.remember_many([*good, bad])
        assert plain.stats()["memories"] == 1
    made = plain.remember_many([*good, {"content": "the boat has a keel", "id": "a"}])
    assert [m.status for m in made] == ["created"] * 1500 + ["duplicate"]


@pytest.mark.parametrize("k", [0, -1, "5", None, 5.0, True])
def test_a_number_of_memories_that_makes_no_sense_is_refused(plain: clew.Memory, k: Any) -> None:
    plain.remember("the boat has a keel", embedding=[1, 0, 0, 0])
    for ask in (
        lambda: plain.recall("keel", k=k),
        lambda: plain.latest(k),
        lambda: plain.fts_search("keel", k),
        lambda: plain.vector_search([1, 0, 0, 0], k),
        lambda: plain.hybrid_search("keel", [1, 0, 0, 0], k),
        lambda: plain.context_pack("keel", k),
    ):
        with pytest.raises(clew.InputError, match=r"must be a whole number from 1 on"):
            ask()


@pytest.mark.parametrize("k", [2, 10**6, 10**30])
def test_more_than_there_are_is_all_there_are(plain: clew.Memory, k: int) -> None:
    plain.remember("the boat has a keel", embedding=[1, 0, 0, 0])
    assert len(plain.recall("keel", k=k)) == len(plain.latest(k)) == 1
    assert len(plain.vector_search([1, 0, 0, 0], k)) == 1


@pytest.mark.parametrize("wrong", [["a"], None, 5, b"a", {"a": 1}, "", "\ud800", "x" * 501])
def test_what_is_no_id_is_refused_in_our_words(memory: clew.Memory, wrong: Any) -> None:
    memory.remember("the boat has a keel", id="a")
    for ask in (memory.get, memory.forget, memory.feedback, memory.history, memory.restore):
        if wrong == ["a"] and ask == memory.restore:
            continue  # which takes several
        if wrong == {"a": 1} and ask == memory.restore:
            continue
        with pytest.raises(clew.InputError):
            ask(wrong)
    with pytest.raises(clew.InputError):
        memory.supersede(wrong, "x")
    assert memory.stats()["memories"] == 1


def test_every_search_is_in_one_namespace(plain: clew.Memory) -> None:
    """A caller that has lost its user's name must not be given everybody's memories."""
    plain.remember("the boat has a keel", namespace="ana", embedding=[1, 0, 0, 0])
    for ask in (
        lambda: plain.recall("keel", namespace=None),  # type: ignore[arg-type]
        lambda: plain.latest(namespace=None),  # type: ignore[arg-type]
        lambda: plain.fts_search("keel", namespace=None),
        lambda: plain.vector_search([1, 0, 0, 0], namespace=None),
        lambda: plain.hybrid_search("keel", namespace=None),
        lambda: plain.context_pack("keel", namespace=None),
        lambda: plain.working_memory("keel", namespace=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(clew.InputError, match="None is no namespace"):
            ask()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_range": (2, 1)}, "reversed"),
        ({"time_range": ("2026-03-02", "2026-03-01")}, "reversed"),
        ({"time_range": (1,)}, "is a pair"),
        ({"time_range": "ab"}, "is a pair"),
        ({"time_range": (dt.datetime(2026, 1, 1), None)}, "no time zone"),
        ({"as_of": dt.datetime(2026, 1, 1)}, "no time zone"),
        ({"now": dt.datetime(2026, 1, 1)}, "no time zone"),
        ({"importance_min": 2}, "from 0 to 1"),
        ({"type_filter": ["semantic", "episodc"]}, "did you mean 'episodic'"),
        ({"type_filter": 5}, "type_filter is"),
        ({"tags": "#"}, "is no tag"),
        ({"metadata": {"a": [{}]}}, "can be compared with"),
        ({"mmr": math.nan}, "from 0 to 1"),
        ({"recency_boost": -0.1}, "from 0 to 1"),
        ({"fusion": "magic"}, "fusion"),
        ({"embedding": [1.0]}, "has 1 dimension"),
    ],
)
def test_a_recall_that_makes_no_sense_is_refused(
    plain: clew.Memory, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(clew.ClewError, match=said):
        plain.recall("keel", **options)


@pytest.mark.parametrize("useful", ["yes", None, 5, 1])
def test_feedback_is_yes_or_no(memory: clew.Memory, useful: Any) -> None:
    memory.remember("the boat has a keel", id="a")
    with pytest.raises(clew.InputError, match="True or False"):
        memory.feedback("a", useful)


@pytest.mark.parametrize("path", [5, None, b"memory.db", "a\0b.db", "x" * 300 + ".db"])
def test_what_is_no_path_is_refused_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(clew.ClewError):
        clew.Memory(path, embedder=HashingEmbedder())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"embedding_dim": 0},
        {"embedding_dim": 3.5},
        {"max_memories": 0},
        {"max_memories": True},
        {"embeding_dim": 4},
        {"embedder": "bge-small"},
    ],
)
def test_options_that_make_no_sense_leave_no_file(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(clew.ClewError):
        clew.Memory(tmp_path / "m.db", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_there_is_not_is_refused(memory: clew.Memory) -> None:
    scoped = memory.scoped("ana")
    for ask in (memory.recall, scoped.recall, memory.context_pack):
        with pytest.raises(TypeError, match="no option 'tag': did you mean 'tags'"):
            ask("keel", tag="boat")
    for call in (memory.working_memory, scoped.working_memory):
        with pytest.raises(TypeError, match="no option 'semantics': did you mean 'semantic'"):
            call("keel", semantics=3)
