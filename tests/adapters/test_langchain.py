"""The retriever inside LangChain, with the real package."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnablePassthrough

import clew
from clew.adapters.langchain import ClewRetriever

from hashing import HashingEmbedder


def test_passages_of_files_come_with_their_place_and_reasons(engine: clew.Engine) -> None:
    first, *_ = ClewRetriever(engine, k=2).invoke("keel bolts")
    hit = engine.search("keel bolts", syntax=False)[0]
    assert first.page_content == hit.content
    assert first.id == first.metadata["id"] == hit.id
    assert first.metadata["path"] == "keel.md"
    assert (first.metadata["start_line"], first.metadata["end_line"]) == hit.lines
    assert first.metadata["score"] == hit.score
    assert first.metadata["status"] == "open"
    assert first.metadata["tags"] == ["safety"]
    assert first.metadata["signals"]["keyword"]["rank"] == 1
    assert json.loads(json.dumps(first.metadata)) == first.metadata


def test_memories_come_with_what_was_said_of_them(remembered: clew.Memory) -> None:
    retriever = ClewRetriever(remembered, k=1, options={"type_filter": "semantic"})
    (found,) = retriever.invoke("walnuts")
    assert found.page_content == "Ana is allergic to walnuts"
    assert found.metadata["turn"] == 7
    assert found.metadata["tags"] == ["health"]
    assert found.metadata["namespace"] == "default"
    assert found.metadata["source"] == "hybrid"
    assert json.loads(json.dumps(found.metadata)) == found.metadata


def test_k_and_options_hold_and_can_be_given_with_a_call(
    engine: clew.Engine, remembered: clew.Memory
) -> None:
    retriever = ClewRetriever(engine, options={"filter": {"path": "tea.md"}})
    assert [found.metadata["path"] for found in retriever.invoke("keel bolts")] == ["tea.md"]
    assert len(ClewRetriever(engine, k=1).invoke("tea keel")) == 1
    memories = ClewRetriever(remembered, k=5)
    assert [
        found.metadata["namespace"] for found in memories.invoke("walnuts", namespace="bo")
    ] == ["bo"]
    assert len(memories.invoke("walnuts", k=1)) == 1
    assert len(asyncio.run(memories.ainvoke("walnuts", k=1, namespace="bo"))) == 1
    with pytest.raises(clew.InputError, match="k must be a whole number"):
        memories.invoke("walnuts", k=0)


def test_signs_in_a_question_are_no_syntax_unless_asked_for(engine: clew.Engine) -> None:
    question = 'why "draws for ten minutes" -tea?'
    assert ClewRetriever(engine).invoke(question)
    assert ClewRetriever(engine, options={"syntax": True}).invoke(question) == []


def test_awaited_batched_and_over_an_async_memory(tmp_path: Path) -> None:
    async def through() -> None:
        async with clew.AsyncMemory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
            await memory.remember("the keel is red")
            await memory.remember("the tea is black")
            retriever = ClewRetriever(memory, k=1)
            assert [d.page_content for d in await retriever.ainvoke("keel")] == ["the keel is red"]
            several = await retriever.abatch(["keel", "tea"])
            assert [d[0].page_content for d in several] == ["the keel is red", "the tea is black"]

    asyncio.run(through())


def test_it_is_part_of_a_chain(engine: clew.Engine) -> None:
    seen: list[str] = []

    def joined(found: list[Document]) -> str:
        seen.extend(document.page_content for document in found)
        return "\n".join(seen)

    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    chain = (
        {"context": ClewRetriever(engine, k=1) | joined, "question": RunnablePassthrough()}
        | prompt
        | FakeListChatModel(responses=["90 Nm"])
        | StrOutputParser()
    )
    assert chain.invoke("how tight are the keel bolts?") == "90 Nm"
    assert "torqued to 90 Nm" in seen[0]


def test_k_is_configurable_and_callbacks_are_told(engine: clew.Engine) -> None:
    class Told(BaseCallbackHandler):
        found: list[Document] = []  # noqa: RUF012

        def on_retriever_end(self, documents: Any, **_: Any) -> None:
            self.found.extend(documents)

    told = Told()
    retriever = ClewRetriever(engine, k=2, tags=["notes"]).configurable_fields(
        k=ConfigurableField(id="k")
    )
    found = retriever.invoke("tea keel", {"configurable": {"k": 1}, "callbacks": [told]})
    assert len(found) == 1
    assert told.found == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k must be a whole number from 1 on"),
        ({"k": True}, "k must be a whole number from 1 on"),
        (
            {"options": {"filtre": {}}},
            "Engine.search has no option 'filtre': did you mean 'filter'",
        ),
        ({"options": {"limit": 3}}, "Engine.search has no option 'limit'"),
        ({"source": "notes"}, "searches an Engine or a Memory"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    engine: clew.Engine, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(clew.InputError, match=said):
        ClewRetriever(**{"source": engine, **given})
