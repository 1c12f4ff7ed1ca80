"""Every character is safe in every search: half characters, NUL, signs of any syntax."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clew
from clew.cli.search import run_search
from clew.models import load_embedder

from hashing import HashingEmbedder

odd = st.sampled_from(["\ud800", "\udfff", "\0", "\x1f", '"', "-", "*", "'", "tag:", "path:", " "])
text = st.lists(odd | st.characters(codec=None) | st.just("keel"), max_size=6).map("".join)


class Places:
    """One store of each kind that can be searched, with the same sentence in it."""

    def __init__(self, folder: Path):
        (folder / "notes").mkdir()
        (folder / "notes" / "a.md").write_text("# Boats\n\nThe boat has a keel.\n")
        self.engine = clew.open(folder / "notes", embedder=HashingEmbedder())
        self.engine.index()
        self.memory = clew.Memory(folder / "memory.db", embedder=HashingEmbedder())
        self.memory.remember("The boat has a keel.", tags=["boats"])
        self.lookup = clew.Search(self.engine)
        self.folder = folder / "notes"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    yield Places(tmp_path_factory.mktemp("characters"))


def found(call: Any, *arguments: Any, **options: Any) -> Any:
    """Its answer. An empty query, or one whose syntax makes no sense, may be refused in words."""
    try:
        return call(*arguments, **options)
    except clew.InputError as error:
        assert str(error)
        return ()


@settings(max_examples=100, deadline=None)
@given(query=text)
@example(query="\ud800")
@example(query="\ud800keel")
@example(query="\0")
@example(query="keel \udfff")
@example(query='"\ud800" -\udfff tag:\ud83d')
def test_whatever_is_asked_is_answered_or_refused_in_words(places: Places, query: str) -> None:
    engine, memory = places.engine, places.memory
    for hits in (
        found(engine.search, query),
        found(engine.search, query),  # as it was kept
        found(engine.search, query, syntax=False, explain=True, cache=False),
        found(engine.search, query, filter={"tags": [query], "metadata": {query: query}}),
        found(engine.search, query, filter={"path": [query], "collection": [query]}),
        found(engine.search, "keel", filter={"ids": [query], "type": query}),
    ):
        if hits:
            json.dumps(hits.to_dict(), ensure_ascii=False).encode()
    found(memory.recall, query)
    found(memory.recall, "keel", metadata={"any": query}, tags=query)
    found(memory.hybrid_search, query)
    found(memory.working_memory, query)
    found(memory.context_pack, query)
    assert all(hit.search_type == "fts" for hit in found(memory.fts_search, query))
    for call in (memory.get, memory.history, memory.forget, memory.restore):
        found(call, query)
    found(places.lookup.external_lookup, query)


@pytest.mark.parametrize("query", ["\ud800", "\0", "keel \udfff \0", "tag:\ud800", "-\0"])
def test_what_is_printed_can_be_printed(
    places: Places, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places.folder)
    for as_json in (False, True):
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with contextlib.redirect_stdout(out), contextlib.suppress(clew.InputError):
            run_search(query, json_output=as_json)
            out.flush()
    answer = found(clew.agentic_search, query)
    if answer:
        json.dumps(answer["sub_queries"], ensure_ascii=False).encode()


def test_a_query_of_no_words_finds_nothing_rather_than_everything(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "memory.db", model="none") as memory:
        memory.remember("The boat has a keel.")
        for query in ("\0", "!!!", "\ufffe"):
            assert memory.fts_search(query) == []
            assert memory.recall(query) == []
            assert memory.context_pack(query) == ""


def test_the_bundled_model_reads_half_characters(tmp_path: Path) -> None:
    if not load_embedder("bge-small").dim:
        pytest.skip("the weights of bge-small are not here")
    with clew.Memory(tmp_path / "memory.db") as memory:
        memory.remember("The boat has a keel.")
        assert len(memory.recall("what has a keel \ud800\0?")) == 1
        assert len(memory.hybrid_search("\udfff")) == 1
