from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cached import result, same

from clew.cache import CacheKey, LookupCache, build_cache_key
from clew.errors import InputError
from clew.types import Hit, SearchResult

SNAPSHOTS = Path(__file__).parent / "snapshots"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def key(query: str, **more: object) -> CacheKey:
    return build_cache_key(query=query, backend="web", **more)  # type: ignore[arg-type]


def test_what_was_put_is_found_under_the_newest_form() -> None:
    cache = LookupCache()
    cache.put(key("keel"), result("keel"))
    found = cache.get(key(" KEEL "))
    assert found is not None and found.slot == "primary" and same(found.result, result("keel"))
    assert cache.get(key("mast")) is None and len(cache) == 1


def test_an_answer_is_kept_under_every_form_of_its_key(tmp_path: Path) -> None:
    cache = LookupCache()
    cache.put(key("keel"), result("keel"))
    cache.save(tmp_path / "kept.json")
    saved = json.loads((tmp_path / "kept.json").read_text())["answers"]
    assert [sorted(each["keys"]) for each in saved] == [sorted(key("keel").candidates())]


@pytest.mark.parametrize(("form", "slot"), [("v2", "alias"), ("legacy", "legacy")])
def test_an_old_snapshot_is_read_and_its_answers_move_up(form: str, slot: str) -> None:
    cache = LookupCache(seconds=1e12)
    cache.load(SNAPSHOTS / f"{form}.json")
    asked = key("Keel bolt", embedding_signature=["vss"])
    found = cache.get(asked)
    assert found is not None and found.slot == slot
    assert [hit.id for hit in found.result] == ["https://example.org/keel"]
    assert found.result[0].content == "Keel bolts of a sloop"
    again = cache.get(asked)
    assert again is not None and again.slot == "primary"


def test_the_oldest_rows_have_the_query_as_it_was_typed_and_no_signature() -> None:
    cache = LookupCache(seconds=1e12)
    assert cache.load(SNAPSHOTS / "legacy.json") == 3
    for query, name in (("sails and ropes", "sails"), ("mast", "mast")):
        found = cache.get(key(query))
        assert found is not None and found.slot == "legacy"
        assert [hit.id for hit in found.result] == [f"https://example.org/{name}"]


def test_an_old_answer_is_not_for_who_wants_to_know_its_state() -> None:
    """A legacy key knows nothing of it; a v2 key has it in its digest."""
    asked = key("keel bolt", embedding_signature=["vss"])
    cache = LookupCache(seconds=1e12)
    cache.load(SNAPSHOTS / "legacy.json")
    assert cache.get(asked, stamped=True) is None
    assert cache.get(asked) is not None
    cache = LookupCache(seconds=1e12)
    cache.load(SNAPSHOTS / "v2.json")
    found = cache.get(asked, stamped=True)
    assert found is not None and found.slot == "alias"
    assert cache.get(key("keel bolt", storage_hints=["2"]), stamped=True) is None


def test_namespaces_never_meet_although_the_oldest_form_does_not_know_them() -> None:
    cache = LookupCache(seconds=1e12)
    mine, yours = key("keel", namespace="me"), key("keel", namespace="you")
    assert mine.legacy == yours.legacy
    cache.put(mine, result("mine"), namespace="me")
    assert cache.get(yours, namespace="you") is None
    assert cache.get(mine) is None
    cache.load(SNAPSHOTS / "v2.json")
    signed = key("keel bolt", embedding_signature=["vss"])
    team = cache.get(signed, namespace="team")
    assert team is not None and team.result[0].title == "Team"
    cache.clear(namespace="me")
    assert cache.get(mine, namespace="me") is None
    assert cache.get(signed, namespace="team") is not None


def test_an_older_form_answers_the_very_same_lookup_only() -> None:
    """The storage has changed since: the oldest form of the key has not."""
    cache = LookupCache()
    before, after = key("keel", storage_hints=["1"]), key("keel", storage_hints=["2"])
    assert before.legacy == after.legacy
    cache.put(before, result("before"))
    assert cache.get(after) is None
    cache.put(after, result("after"))
    newer, older = cache.get(after), cache.get(before)
    assert newer is not None and newer.result[0].id == "after-0"
    assert older is not None and older.result[0].id == "before-0"


def test_an_answer_is_kept_no_longer_than_it_may_be() -> None:
    clock = Clock()
    cache = LookupCache(seconds=60, clock=clock)
    cache.put(key("keel"), result("keel"))
    clock.now += 59
    assert cache.get(key("keel")) is not None
    clock.now += 1
    assert cache.get(key("keel")) is None
    clock.now -= 120  # a clock that was put back does not make it young again
    cache.put(key("mast"), result("mast"))
    clock.now -= 1
    assert cache.get(key("mast")) is None


def test_moving_up_does_not_make_an_answer_younger(tmp_path: Path) -> None:
    clock = Clock()
    cache = LookupCache(seconds=60, clock=clock)
    cache.put(key("keel"), result("keel"))
    cache.save(tmp_path / "kept.json")
    other = LookupCache(seconds=60, clock=clock)
    clock.now += 30
    assert other.load(tmp_path / "kept.json") == 1
    assert other.get(key("keel")) is not None
    clock.now += 30
    assert other.get(key("keel")) is None


def test_the_number_of_answers_is_bounded_and_the_oldest_go_first() -> None:
    cache = LookupCache(entries=3)
    for i in range(10):
        cache.put(key(f"q{i}"), result(f"r{i}"))
    assert len(cache) == 3
    assert cache.get(key("q6")) is None and cache.get(key("q7")) is not None
    nothing = LookupCache(entries=0)
    nothing.put(key("q"), result("r"))
    assert nothing.get(key("q")) is None


def test_what_a_caller_does_to_an_answer_no_other_sees() -> None:
    cache = LookupCache()
    mine = result("keel")
    cache.put(key("keel"), mine)
    mine[0].metadata["tags"].append("changed")  # type: ignore[index]
    found = cache.get(key("keel"))
    assert found is not None
    found.result[0].metadata["tags"].append("changed")  # type: ignore[index]
    again = cache.get(key("keel"))
    assert again is not None and again.result[0].metadata["tags"] == ["keel", "x"]


def test_what_cannot_be_copied_is_not_kept() -> None:
    cache = LookupCache()
    cache.put(key("keel"), SearchResult((Hit("a", "b", metadata={"odd": object()}),)))
    assert cache.get(key("keel")) is None


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    cache = LookupCache()
    for name in ("keel", "mast"):
        cache.put(key(name, namespace="n"), result(name), namespace="n")
    assert cache.save(tmp_path / "kept.json") == 2
    other = LookupCache()
    assert other.load(tmp_path / "kept.json") == 2
    found = other.get(key("keel", namespace="n"), namespace="n", stamped=True)
    assert found is not None and same(found.result, result("keel"))
    assert (tmp_path / "kept.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"a": 1}', "\0", '{"clew": 3, "answers": 5}']
)
def test_a_file_that_is_no_snapshot_takes_nothing_down(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    cache = LookupCache()
    cache.put(key("keel"), result("keel"))
    try:
        assert cache.load(tmp_path / "kept.json") == 0
    except InputError as error:
        assert "delete it" in str(error)
    assert cache.get(key("keel")) is not None


def test_rows_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    sound = LookupCache()
    sound.put(key("keel"), result("keel"))
    sound.save(tmp_path / "kept.json")
    told = json.loads((tmp_path / "kept.json").read_text())
    told["answers"] += [5, {}, {**told["answers"][0], "answer": "{"}, {"answer": 3, "made": "x"}]
    (tmp_path / "kept.json").write_text(json.dumps(told))
    assert LookupCache().load(tmp_path / "kept.json") == 1


def test_threads_get_their_own_answers_and_none_of_another_s() -> None:
    cache = LookupCache(entries=50)

    def work(number: int) -> None:
        for i in range(200):
            name = f"q{(number * 7 + i) % 60}"
            found = cache.get(key(name))
            if found is None:
                cache.put(key(name), result(name, words=1))
            else:
                assert found.result[0].id == f"{name}-0"

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert len(cache) <= 50
