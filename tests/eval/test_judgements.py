from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.engine import Engine, open_engine
from clew.errors import InputError, StoreError
from clew.eval.datasets import Question, read
from clew.eval.harness import run_mode
from clew.eval.judgements import Judgements, pool_hits, suggest_query, write_template
from clew.types import Hit, Record

from hashing import HashingEmbedder

TEXTS = {
    "bolts": ("Keel bolts", "Tighten the keel bolts to 95 Nm, in three passes."),
    "epoxy": ("", "# Curing epoxy\n\nIt takes twelve hours at 18 °C."),
    "soup": ("soup.md", "Miso, dashi, spring onions; never boil the miso."),
    "tab\tid": ("", "An id with a tab in it cannot stand in a table."),
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with open_engine(tmp_path / "own", embedder=HashingEmbedder()) as engine:
        engine.add([Record(name, text, title=title) for name, (title, text) in TEXTS.items()])
        engine.embed()
        yield engine


# ---------------------------------------------------------------------- template


def test_a_template_can_be_evaluated_as_it_is(engine: Engine, tmp_path: Path) -> None:
    assert write_template(engine.store, tmp_path / "t", number=20) == 3
    dataset = read(tmp_path / "t")
    assert dataset.records is None
    assert [q.text for q in dataset.queries][:2] == ["Keel bolts", "Curing epoxy"]
    assert dataset.qrels == {"q1": {"bolts": 1}, "q2": {"epoxy": 1}, "q3": {"soup": 1}}
    assert "3 queries are unchecked suggestions" in dataset.notes[0]
    assert (tmp_path / "t" / ".clewignore").read_text() == "*\n"
    assert "clew judge" in (tmp_path / "t" / "README.txt").read_text("utf-8")


def test_documents_are_chosen_evenly_and_the_same_each_time(tmp_path: Path) -> None:
    with open_engine(tmp_path / "many", model="none") as engine:
        engine.add([Record(f"r{i:04}", f"record number {i}") for i in range(1200)])
        for out in ("one", "two"):
            assert write_template(engine.store, tmp_path / out, number=4) == 4
    qrels = (tmp_path / "one" / "qrels.tsv").read_text()
    assert qrels == (tmp_path / "two" / "qrels.tsv").read_text()
    assert [line.split("\t")[1] for line in qrels.splitlines()[1:]] == [
        "r0150",
        "r0450",
        "r0750",
        "r1050",
    ]


def test_labelled_work_is_never_overwritten(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        write_template(engine.store, tmp_path, number=3)
    assert (tmp_path / "qrels.tsv").read_text() == "mine"
    assert not (tmp_path / "queries.jsonl").exists()


def test_an_empty_store_has_nothing_to_ask_about(tmp_path: Path) -> None:
    store = open_engine(tmp_path / "empty", model="none")
    with store as engine, pytest.raises(StoreError, match="empty"):
        write_template(engine.store, tmp_path / "t", number=3)
    assert not (tmp_path / "t").exists()


def test_a_suggestion_is_a_title_a_heading_or_rare_words() -> None:
    common = Counter({"the": 9, "boat": 9, "keel": 1, "sextant": 1, "varnish": 1, "lantern": 1})
    assert suggest_query(Record("a", "text", title="Two words"), common) == "Two words"
    assert suggest_query(Record("a", "# A heading\n\ntext", title="single"), common) == "A heading"
    words = "the boat has a keel and a sextant, a lantern, varnish"
    assert suggest_query(Record("a", words), common) == "keel sextant lantern varnish"
    assert suggest_query(Record("a", "日本語"), Counter()) == "日本語"


# ---------------------------------------------------------------------- judging


def test_the_pool_has_every_modes_hits_once_by_best_rank(engine: Engine) -> None:
    hits = pool_hits(engine, Question("q", "miso soup"), limit=10)
    assert hits[0].id == "soup" and len({hit.id for hit in hits}) == len(hits) == 4
    only = pool_hits(engine, Question("q", "miso soup"), limit=10, modes=["keyword"])
    assert [hit.id for hit in only] == ["soup"]


def test_marks_are_on_disk_at_once_and_not_asked_again(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path / "j")
    question = judgements.question("keel bolts")
    first, second = Hit("bolts", "…"), Hit("id with blanks", "…")
    judgements.mark(question, first, 3)
    assert (
        tmp_path / "j" / "qrels.tsv"
    ).read_text() == "query-id\tcorpus-id\tscore\nq1\tbolts\t3\n"
    again = Judgements(tmp_path / "j")
    assert again.question("keel bolts") == question
    assert again.to_judge(question, [first, second, Hit("a\tb", "")]) == [second]
    again.mark(question, second, 0)
    assert read(tmp_path / "j").qrels == {"q1": {"bolts": 3, "id with blanks": 0}}
    assert again.question("another").id == "q2"


def test_a_query_is_judged_as_it_is_evaluated_in_plain_words(engine: Engine) -> None:
    asked = Question("q", "keel -bolts")  # as syntax: anything but the one document about them
    plain = pool_hits(engine, asked, limit=1, modes=["keyword"])
    run = run_mode(engine, [asked], "keyword")
    assert [hit.id for hit in plain] == list(run.ranked["q"][:1]) == ["bolts"]
    assert pool_hits(engine, asked, limit=1, modes=["keyword"], syntax=True) == []


def test_a_file_cut_short_or_edited_by_hand_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "mine", "text": "keel"}))
    (tmp_path / "qrels.tsv").write_text("mine\tbolts\t1")  # no line break at the end
    judgements = Judgements(tmp_path)
    judgements.mark(judgements.question("keel"), Hit("epoxy", ""), 0)
    judgements.question("soup")
    dataset = read(tmp_path)
    assert dataset.qrels == {"mine": {"bolts": 1, "epoxy": 0}}
    assert len((tmp_path / "queries.jsonl").read_text().splitlines()) == 2


def test_a_broken_line_is_named_before_anything_is_judged(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("mine bolts 1\n")
    with pytest.raises(InputError, match=r"qrels\.tsv:1"):
        Judgements(tmp_path)
    with pytest.raises(InputError, match="empty"):
        Judgements(tmp_path / "new").question("  ")


def test_a_question_of_a_file_keeps_its_id_unless_it_is_taken(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path)
    assert judgements.question(Question("x7", "keel", "yard")).id == "x7"
    assert judgements.question(Question("x7", "other")).id == "q1"
    assert judgements.questions[0].scope == "yard"
    assert Judgements(tmp_path).question(Question("x7", "keel", "yard")).id == "x7"
