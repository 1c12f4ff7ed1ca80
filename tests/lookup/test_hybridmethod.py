"""Each method works on the class and on an instance, and so does what is put in its place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import clew
from clew import Search, hybridmethod


def stub(self: Any, query: str, max_results: int = 5, *, return_handles: bool = False) -> Any:
    return [(self, query, max_results)]


def test_the_class_uses_one_shared_instance(storage: clew.Engine) -> None:
    shared = Search.configure(storage)
    assert Search.shared() is shared is Search.shared()
    on_class = Search.external_lookup("keel bolts")
    assert on_class == shared.external_lookup("keel bolts")
    vector = storage.embed_query("keel bolts")
    assert Search.embedding_lookup(vector) == shared.embedding_lookup(vector)
    (document,) = Search.add_embeddings([{"content": "keel bolts"}], vector)
    assert document["similarity"] > 0.5


def test_an_instance_is_asked_and_not_the_shared_one(storage: clew.Engine) -> None:
    Search.configure(backends={"mine": lambda query, limit: [{"id": "shared", "text": "keel"}]})
    with Search(backends={"mine": lambda query, limit: [{"id": "own", "text": "keel"}]}) as own:
        assert [hit.id for hit in own.external_lookup("keel")] == ["own"]
    assert [hit.id for hit in Search.external_lookup("keel")] == ["shared"]


def test_a_search_that_was_closed_says_so(storage: clew.Engine) -> None:
    search = Search(storage)
    search.close()
    search.close()
    with pytest.raises(clew.ConfigError, match="closed"):
        search.external_lookup("keel")


def test_a_stub_on_the_class_works_on_both_paths(
    monkeypatch: pytest.MonkeyPatch, search: Search, storage: clew.Engine
) -> None:
    shared = Search.configure(storage)
    monkeypatch.setattr(Search, "external_lookup", hybridmethod(stub))
    assert Search.external_lookup("q", 2) == [(shared, "q", 2)]
    assert search.external_lookup("q") == [(search, "q", 5)]
    monkeypatch.undo()
    assert search.external_lookup("keel")[0].id == "keel"


def test_a_stub_on_an_instance_works_there_alone(
    monkeypatch: pytest.MonkeyPatch, search: Search, storage: clew.Engine
) -> None:
    Search.configure(storage)
    monkeypatch.setattr(search, "external_lookup", hybridmethod(stub))
    assert search.external_lookup("q") == [(search, "q", 5)]
    assert Search.external_lookup("keel")[0].id == "keel"
    monkeypatch.undo()
    assert search.external_lookup("keel")[0].id == "keel"


def test_a_stub_on_the_shared_instance_works_through_the_class(storage: clew.Engine) -> None:
    shared = Search.configure(storage)
    shared.external_lookup = hybridmethod(stub)  # type: ignore[method-assign]
    assert Search.external_lookup("q") == shared.external_lookup("q") == [(shared, "q", 5)]
    del shared.external_lookup
    assert Search.external_lookup("keel")[0].id == "keel"
    with pytest.raises(AttributeError):
        del shared.external_lookup


def test_a_plain_function_on_an_instance_is_called_as_it_is(search: Search) -> None:
    search.embedding_lookup = lambda vector: ["plain", vector]  # type: ignore[method-assign]
    assert search.embedding_lookup(3) == ["plain", 3]


def test_any_class_can_have_such_methods() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        @hybridmethod
        def up(self, by: int = 1) -> int:
            """Count."""
            self.count += by  # type: ignore[attr-defined]
            return self.count  # type: ignore[attr-defined]

    own = Counter()
    assert [Counter.up(), Counter.up(by=2), own.up()] == [1, 3, 1]
    assert Counter.__dict__["up"].__doc__ == "Count."


def test_configuring_anew_replaces_the_instance_and_reset_forgets_it(storage: clew.Engine) -> None:
    first = Search.configure(storage)
    second = Search.configure(storage, max_file_mb=1)
    assert Search.shared() is second is not first
    assert first.external_lookup("keel")  # whoever fetched it a moment ago may go on
    assert storage.search("keel")  # it was given, so it stays open
    Search.reset()
    assert Search.shared() is not second
    with pytest.raises(clew.ConfigError, match="nothing to look in"):
        Search.external_lookup("keel")


def test_what_is_wrong_with_an_argument_leaves_the_instance_before(storage: clew.Engine) -> None:
    shared = Search.configure(storage)
    with pytest.raises(clew.ConfigError, match="deadline"):
        Search.configure(storage, deadline=-1)
    assert Search.shared() is shared and Search.external_lookup("keel")


def test_a_class_of_its_own_has_an_instance_of_its_own(storage: clew.Engine) -> None:
    class Mine(Search):
        pass

    Search.configure(storage)
    assert Mine.shared() is not Search.shared()
    Mine.reset()


def test_threads_share_one_instance_and_configuring_does_not_cut_them_off(
    storage: clew.Engine,
) -> None:
    Search.configure(storage)

    def ask() -> None:
        for i in range(25):
            assert Search.external_lookup(f"keel bolts {i % 5}")[0].id == "keel"

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(ask) for _ in range(6)]
        for _ in range(5):
            Search.configure(storage)
    for each in asked:
        each.result()
