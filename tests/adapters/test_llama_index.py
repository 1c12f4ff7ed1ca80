"""The retriever inside LlamaIndex, with the real package."""

from __future__ import annotations

import asyncio
import json

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import MetadataMode, QueryBundle, TextNode

import clew
from clew.adapters.llama_index import ClewRetriever


def test_passages_of_files_are_nodes_with_their_place(engine: clew.Engine) -> None:
    first, *_ = ClewRetriever(engine, k=2).retrieve("keel bolts")
    hit = engine.search("keel bolts", syntax=False)[0]
    assert isinstance(first.node, TextNode)
    assert first.score == hit.score
    assert first.node.node_id == first.node.ref_doc_id == hit.id
    assert first.text == hit.content
    assert first.metadata["path"] == "keel.md"
    assert (first.metadata["start_line"], first.metadata["end_line"]) == hit.lines
    assert first.metadata["signals"]["keyword"]["rank"] == 1
    assert json.loads(json.dumps(first.metadata)) == first.metadata
    assert TextNode.from_json(first.node.to_json()) == first.node


def test_a_model_reads_where_it_is_from_and_no_figures(engine: clew.Engine) -> None:
    (first, *_) = ClewRetriever(engine, k=1).retrieve("keel bolts")
    read = first.node.get_content(MetadataMode.LLM)
    assert "path: keel.md" in read
    assert "status: open" in read
    assert "torqued to 90 Nm" in read
    assert "signals" not in read
    assert "score" not in read
    assert first.node.get_content(MetadataMode.EMBED) == first.text


def test_memories_are_nodes_too(remembered: clew.Memory) -> None:
    retriever = ClewRetriever(remembered, k=5, options={"namespace": "bo"})
    (found,) = retriever.retrieve(QueryBundle("walnuts", embedding=[0.1] * 7))
    assert found.text == "Bo is allergic to walnuts too"
    assert found.metadata["namespace"] == "bo"
    again = asyncio.run(retriever.aretrieve("walnuts"))
    assert [one.node.node_id for one in again] == [found.node.node_id]


def test_it_answers_inside_a_query_engine(engine: clew.Engine) -> None:
    retriever = ClewRetriever(engine, k=1)
    only = RetrieverQueryEngine(retriever, response_synthesizer=NoText(llm=MockLLM()))
    answer = only.query("how tight are the keel bolts?")
    assert [node.metadata["path"] for node in answer.source_nodes] == ["keel.md"]
    told = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())  # repeats what it is told
    answer = told.query("how tight are the keel bolts?")
    assert "torqued to 90 Nm" in str(answer)
    assert "how tight are the keel bolts?" in str(answer)
    later = asyncio.run(told.aquery("how tight are the keel bolts?"))
    assert str(later) == str(answer)


def test_it_is_fused_with_another_retriever(engine: clew.Engine, remembered: clew.Memory) -> None:
    fused = QueryFusionRetriever(
        [ClewRetriever(engine, k=2), ClewRetriever(remembered, k=2)],
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=4,
        mode="reciprocal_rerank",
        use_async=False,
    )
    texts = [node.text for node in fused.retrieve("tea")]
    assert any("four minutes" in text for text in texts)
    assert "Ana drinks tea" in texts


def test_what_makes_no_sense_is_refused_at_once(remembered: clew.Memory) -> None:
    with pytest.raises(clew.InputError, match=r"Memory\.recall has no option 'tag': did you mean"):
        ClewRetriever(remembered, options={"tag": "health"})
    with pytest.raises(clew.InputError, match="k must be a whole number"):
        ClewRetriever(remembered, k=-1)
    with pytest.raises(clew.InputError, match="searches an Engine or a Memory"):
        ClewRetriever(None)  # type: ignore[arg-type]
    with pytest.raises(clew.InputError, match="empty"):
        ClewRetriever(remembered).retrieve(" ")
