"""What stands on stores, on those of servers: evaluation and the knowledge graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clew.engine import open_engine
from clew.eval import harness, metrics
from clew.eval.datasets import Dataset, Question
from clew.types import Record
from postgres_server import new_url
from qdrant_server import serving, url_of

from hashing import HashingEmbedder

TEXTS = {
    "winch": "The winch of the Aurora is greased by Mara Lindqvist every spring.",
    "crane": "Mara Lindqvist inspects the crane in the yard at Kungshamn.",
    "hull": "The hull of the Aurora was painted at Kungshamn. Paint needs two days.",
    "sails": "Sails are dried before they are stored for the winter.",
}


@pytest.fixture(scope="module", params=["postgres", "qdrant"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgres":
        yield new_url()
    else:
        with serving() as nodes:
            yield url_of(nodes, "uses")


def test_a_collection_is_evaluated_and_its_graph_is_built(url: str, tmp_path: Path) -> None:
    dataset = Dataset(
        "boats",
        tmp_path,
        "test",
        tuple(Record(name, text) for name, text in TEXTS.items()),
        (Question("1", "who greases the winch"), Question("2", "drying sails for winter")),
        {"1": {"winch": 1}, "2": {"sails": 1}},
    )
    engine, why = harness.open_indexed(
        dataset, folder=tmp_path, embedder=HashingEmbedder(), overrides={"store": url}
    )
    assert why is None
    with closing(engine):
        for mode in harness.DEFAULT_MODES:
            run = harness.run_mode(engine, dataset.queries, mode)
            each = metrics.per_query(dataset.qrels, run.ranked, measures=["ndcg@10"])
            assert each["ndcg@10"] == {"1": 1.0, "2": 1.0} and not run.degraded
        report = engine.graph.build(llm=False)
        assert report.records == len(TEXTS)
        found = engine.search("Mara Lindqvist", sources=["graph"])
        assert {"winch", "crane"} <= {hit.id for hit in found} and not found.degraded
    with closing(open_engine(tmp_path, store=url, embedder=HashingEmbedder())) as again:
        assert again.graph.build(llm=False).read == 0
