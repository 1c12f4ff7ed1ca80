"""Anybody's embedder: what it may be, and what becomes of a memory when it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.errors import ModelError

from hashing import HashingEmbedder

DIM = 8


def row(text: str) -> list[float]:
    return [float(value) * 3 for value in HashingEmbedder(dim=DIM).embed_query(text)]


class Ours:
    model, dim = "ours@1", DIM

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return [row(text) for text in texts]

    def embed_query(self, text: str) -> Any:
        return row(text)


class LikeLangChain:
    """No name and no dimension, and lists of floats."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [row(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return row(text)


class LikeSentenceTransformers:
    """Callable as every torch module is, with something else than texts."""

    def encode(self, texts: str | list[str]) -> Any:
        rows = np.array([row(text) for text in ([texts] if isinstance(texts, str) else texts)])
        return rows[0] if isinstance(texts, str) else rows

    def get_sentence_embedding_dimension(self) -> int:
        return DIM

    def __call__(self, features: dict[str, Any]) -> None:
        raise TypeError("features are tensors")


def with_lists(text: str) -> list[float]:
    return row(text)


def with_doubles(text: str) -> Any:
    return np.array(row(text), np.float64)


@pytest.mark.parametrize(
    "embedder",
    [Ours(), LikeLangChain(), LikeSentenceTransformers(), with_lists, with_doubles],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_whatever_makes_vectors_of_texts_can_be_the_embedder(tmp_path: Path, embedder: Any) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=DIM, embedder=embedder) as memory:
        made = memory.remember_many([{"content": "the boat has a keel"}, {"content": "a red sail"}])
        assert all(m.embedded for m in made)
        (found, *_) = memory.recall("the boat has a keel")
        assert (found.search_type, found.id) == ("hybrid", made[0].id)
        (nearest, *_) = memory.vector_search(row("the boat has a keel"))
        assert nearest.id == made[0].id
        assert nearest.score == pytest.approx(1.0, abs=1e-5)  # of length 1, whatever it gave
        assert memory.stats()["embedded"] == 1.0


def of_rows(give: Callable[[int], Any]) -> Ours:
    made = Ours()
    made.embed_documents = lambda texts: give(len(texts))  # type: ignore[method-assign]
    made.embed_query = lambda text: give(1)[0]  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    ("give", "why"),
    [
        (lambda n: np.full((n, DIM), np.nan), "NaN"),
        (lambda n: np.full((n, DIM), np.inf), "infinity"),
        (lambda n: np.ones((n + 1, DIM)), "for 1 text"),
        (lambda n: np.ones((0, DIM)), "for 1 text"),
        (lambda n: np.ones(DIM), "for 1 text"),
        (lambda n: None, "for 1 text"),
        (lambda n: "vector", "failed"),
        (lambda n: [["a"] * DIM], "failed"),
        (lambda n: [[1.0] * DIM, [1.0]], "failed"),
        (lambda n: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_text_is_kept_when_its_vector_is_nonsense_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, give: Callable[[int], Any], why: str
) -> None:
    with clew.Memory(tmp_path / "m.db", embedder=of_rows(give)) as memory:
        assert not memory.remember("the boat has a keel").embedded
        assert why in caplog.text
        assert [m.search_type for m in memory.recall("keel")] == ["fts"]


def test_a_memory_of_given_vectors_is_asked_for_words_without_a_warning(
    plain: clew.Memory, caplog: pytest.LogCaptureFixture
) -> None:
    plain.remember("the boat has a keel", embedding=[1, 0, 0, 0])
    found = plain.recall("keel")
    assert [m.search_type for m in found] == ["fts"]
    assert "no embedding model is configured" in found.diagnostics["degraded"][0]
    assert not caplog.records


def test_vectors_of_another_length_than_was_said_are_an_error_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    with clew.Memory(tmp_path / "m.db", embedder=with_lists) as memory:  # 384 by default
        with pytest.raises(clew.InputError, match=f"embedding_dim={DIM}"):
            memory.remember("the boat has a keel")
        assert memory.stats()["memories"] == 0
    with clew.Memory(tmp_path / "m.db", embedder=with_lists, embedding_dim=DIM) as memory:
        assert memory.remember("the boat has a keel").embedded


def test_a_service_that_cannot_even_say_its_dimension_loses_nothing(tmp_path: Path) -> None:
    class Unreachable(Ours):
        reached = False

        @property
        def dim(self) -> int:  # type: ignore[override]
            if not self.reached:
                raise ModelError("no route to the model")
            return DIM

    service = Unreachable()
    with clew.Memory(tmp_path / "m.db", embedder=service, embedding_dim=DIM) as memory:
        assert not memory.remember("the boat has a keel").embedded
        assert len(memory.recall("keel")) == 1
        service.reached = True
        # told again, it gets the vector it lacked
        again = memory.remember("the boat has a keel")
        assert (again.status, again.embedded) == ("updated", True)
        assert memory.remember("the boat has a keel").status == "duplicate"
        assert memory.recall("keel")[0].search_type == "hybrid"


def test_a_vector_given_for_a_known_text_is_kept_if_it_had_none(plain: clew.Memory) -> None:
    plain.remember("the boat has a keel", id="a")
    again = plain.remember("the boat has a keel", embedding=[1, 0, 0, 0])
    assert (again.id, again.status, again.embedded) == ("a", "updated", True)
    assert [m.id for m in plain.vector_search([1, 0, 0, 0])] == ["a"]
    assert plain.remember("the boat has a keel", embedding=[0, 1, 0, 0]).status == "duplicate"
    assert plain.vector_search([1, 0, 0, 0])[0].score == pytest.approx(1.0)


def test_vectors_of_two_models_are_never_compared(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder(model="a@1", dim=16)) as memory:
        memory.remember("the keel is red", id="old")
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder(model="b@1", dim=32)) as memory:
        memory.remember("the keel is blue", id="new")
        found = memory.recall("keel")
        assert {m.id for m in found} == {"old", "new"}  # the old one by its words
        assert "50 %" in found.diagnostics["degraded"][0]
        assert memory.stats()["models"] == {"a@1": 1, "b@1": 1}
        query = HashingEmbedder(dim=32).embed_query("keel")
        assert [m.id for m in memory.vector_search(query)] == ["new"]
        with pytest.raises(clew.InputError, match="has 16 dimensions"):
            memory.vector_search(np.ones(16))
        assert memory.reembed() == 1
        assert {m.id for m in memory.vector_search(query)} == {"old", "new"}
        assert memory.stats()["models"] == {"b@1": 2}


def test_a_file_with_given_vectors_of_another_length_is_still_good_for_words(
    tmp_path: Path,
) -> None:
    with clew.Memory(tmp_path / "m.db", embedding_dim=768) as memory:
        memory.remember("the keel is red", embedding=np.ones(768), id="a")
    with clew.Memory(tmp_path / "m.db", embedding_dim=384, model="none") as memory:
        assert [m.id for m in memory.recall("keel")] == ["a"]
        assert memory.remember("the keel is blue").status == "created"
        for ask in (
            lambda: memory.remember("a mast", embedding=np.ones(384)),
            lambda: memory.recall("keel", np.ones(384)),
            lambda: memory.vector_search(np.ones(384)),
        ):
            with pytest.raises(clew.InputError, match=r"768"):
                ask()
        assert memory.stats()["memories"] == 2
        memory.forget("a", hard=True)  # with it goes the last vector of that length
        assert memory.remember("a mast", embedding=np.ones(384)).embedded
        assert [m.content for m in memory.vector_search(np.ones(384))] == ["a mast"]


def test_a_recall_does_not_wait_for_an_embedder_that_hangs(unheard: clew.Memory) -> None:
    for found in (unheard.recall("keel"), unheard.hybrid_search("keel")):
        assert [(each.id, each.search_type) for each in found] == [("keel", "fts")]
        assert "within 1 s" in found.diagnostics["degraded"][0]
