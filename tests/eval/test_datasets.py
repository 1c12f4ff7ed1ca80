from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from clew.errors import InputError
from clew.eval import datasets, metrics
from clew.eval.datasets import read

Q1: dict[str, Any] = {"_id": "q1", "text": "keel bolts"}
D1: dict[str, Any] = {"_id": "d1", "title": "Keel", "text": "Tighten the bolts."}


@pytest.mark.parametrize("gz", [False, True])
def test_a_folder_is_read_plain_or_gzipped(write: Any, gz: bool) -> None:
    dataset = read(write(gz=gz))
    assert dataset.name == "tiny" and dataset.split == "test"
    assert dataset.records is not None
    assert [record.id for record in dataset.records] == ["d1", "d2", "d3", "d4", "d 5"]
    assert [q.id for q in dataset.queries] == ["q1", "q2", "q3"]
    assert dataset.qrels["q1"] == {"d1": 2, "d 5": 1}
    assert dataset.qrels["q3"] == {"d3": 1, "d4": 0}
    assert dataset.queries[1].scope == "yard" and dataset.queries[1].category == "boat"
    assert dataset.notes == ()


def test_the_title_is_kept_and_is_the_text_where_there_is_none(write: Any) -> None:
    records = {r.id: r for r in read(write()).records or ()}
    assert records["d1"].title == "Keel bolts"
    assert records["d1"].content == "Tighten the keel bolts to 95 Nm."
    assert (records["d3"].title, records["d3"].content) == ("", "Miso soup")
    assert records["d1"].collection == "yard"


def test_date_and_speaker_are_part_of_the_searched_text(write: Any) -> None:
    rows = [
        {"_id": "a", "text": "Ann: hello", "speaker": "Ann", "date": "8 May", "session": "S1"},
        {"_id": "b", "text": "hello", "speaker": "Bob"},
        {"_id": "c", "text": "hello", "date": "9 May"},
    ]
    dataset = read(write(corpus=rows, queries=[Q1], qrels=["q1\ta\t1"]))
    contents = [record.content for record in dataset.records or ()]
    assert contents == ["8 May Ann: hello", "Bob: hello", "9 May hello"]
    assert (dataset.records or ())[0].metadata == {
        "speaker": "Ann",
        "date": "8 May",
        "session": "S1",
    }


def test_without_a_corpus_the_judgements_are_about_a_store(write: Any) -> None:
    dataset = read(write(corpus=None))
    assert dataset.records is None and len(dataset.queries) == 3


def test_documents_without_title_and_text_are_counted(write: Any) -> None:
    rows = [D1, {"_id": "empty", "title": " ", "text": ""}]
    dataset = read(write(corpus=rows, queries=[Q1], qrels=["q1\td1\t1", "q1\tempty\t1"]))
    assert [record.id for record in dataset.records or ()] == ["d1"]
    assert "1 documents have neither title nor text" in dataset.notes[0]
    assert dataset.qrels["q1"] == {"d1": 1, "empty": 1}  # it cannot be found, and that counts


def test_queries_without_a_relevant_document_are_left_out_and_counted(write: Any) -> None:
    queries = [Q1, {"_id": "q2", "text": "nobody judged this"}, {"_id": "q3", "text": "not this"}]
    dataset = read(write(corpus=[D1], queries=queries, qrels=["q1\td1\t1", "q3\td1\t0"]))
    assert [q.id for q in dataset.queries] == ["q1"]
    assert list(dataset.qrels) == ["q1"]
    assert "2 queries without a relevant document" in dataset.notes[0]


def test_other_splits_are_read_by_name(write: Any) -> None:
    folder = write()
    (folder / "queries_train.jsonl").write_text(json.dumps({"_id": "t1", "text": "bread"}) + "\n")
    (folder / "qrels_train.tsv").write_text("t1\td4\t1\n")  # without a heading
    assert [q.id for q in read(folder, split="train").queries] == ["t1"]
    with pytest.raises(InputError, match=r"no qrels_dev\.tsv"):
        read(folder, split="dev")
    with pytest.raises(InputError, match="unknown split"):
        read(folder, split="validation")


def test_the_layout_of_beir_itself_is_read_too(write: Any) -> None:
    folder = write(qrels=None)
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td3\t1\n")
    assert [q.id for q in read(folder).queries] == ["q3"]


def test_limit_takes_the_first_judged_queries(write: Any) -> None:
    dataset = read(write(), limit=2)
    assert [q.id for q in dataset.queries] == ["q1", "q2"] and set(dataset.qrels) == {"q1", "q2"}


def test_ids_may_have_any_characters(write: Any) -> None:
    strange = "conv-26/D1:1 ½ “x”\\n"
    dataset = read(
        write(corpus=[{**D1, "_id": strange}], queries=[Q1], qrels=[f"q1\t{strange}\t1"])
    )
    assert dataset.qrels == {"q1": {strange: 1}}


BAD = [
    ("corpus.jsonl:2", {"corpus": [D1, D1]}, "'d1' is there already, at line 1"),
    ("corpus.jsonl:1", {"corpus": ['{"_id": "d1", ']}, "not JSON"),
    ("corpus.jsonl:1", {"corpus": ["[1, 2]"]}, "object"),
    ("corpus.jsonl:1", {"corpus": [{"text": "x"}]}, "_id"),
    ("corpus.jsonl:1", {"corpus": [{"_id": "d1", "text": 3}]}, "strings"),
    ("queries.jsonl:2", {"queries": [Q1, Q1]}, "'q1' is there already, at line 1"),
    ("queries.jsonl:2", {"queries": [Q1, {"_id": "q2", "text": "  "}]}, "'q2' is empty"),
    ("queries.jsonl:2", {"queries": [Q1, {"_id": "q2"}]}, "'q2' is empty"),
    ("qrels.tsv:3", {"qrels": ["q1\td1\t1", "q1\td9\t1"]}, "no document 'd9'"),
    ("qrels.tsv:3", {"qrels": ["q1\td1\t1", "q9\td1\t1"]}, "no query 'q9'"),
    ("qrels.tsv:2", {"qrels": ["q1 d1 1"]}, "3 columns"),
    ("qrels.tsv:2", {"qrels": ["q1\td1\tyes"]}, "'yes' is not a whole number"),
    ("qrels.tsv:3", {"qrels": ["q1\td1\t1", "q1\td1\t2"]}, "judged otherwise at"),
    ("qrels.tsv:2", {"qrels": ["q1\td1\t1000001"]}, "relevance 1000001 is too large"),
    ("qrels.tsv:2", {"qrels": ["q1\td1\t-1000001"]}, "too large"),
    ("qrels.tsv:2", {"qrels": [f"q1\td1\t{2**64}"]}, "too large"),
    ("qrels.tsv:2", {"qrels": ["q1\td1\t1e300"]}, "relevance 1e300 is too large"),
    ("qrels.tsv", {"qrels": []}, "no judgements"),
    ("qrels.tsv", {"qrels": ["q1\td1\t0"]}, "no judgement says"),
    ("queries.jsonl", {"queries": []}, "no query"),
    ("corpus.jsonl", {"corpus": []}, "no document"),
    ("queries.jsonl", {"queries": [{**Q1, "scope": "attic"}]}, "scope 'attic'"),
]


@pytest.mark.parametrize(("place", "parts", "says"), BAD)
def test_what_is_wrong_is_said_with_file_and_line(
    write: Any, place: str, parts: dict[str, Any], says: str
) -> None:
    given = {"corpus": [D1], "queries": [Q1], "qrels": ["q1\td1\t1"], **parts}
    with pytest.raises(InputError) as error:
        read(write(**given))
    assert place in str(error.value) and says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["corpus.jsonl.gz", "queries.jsonl.gz", "qrels.tsv.gz"])
def test_a_truncated_gzip_is_named_with_the_line_it_breaks_at(write: Any, file: str) -> None:
    many = [{"_id": f"d{i}", "text": f"text {i * 7919}"} for i in range(500)]
    asked = [{"_id": f"q{i}", "text": f"question {i * 104729}"} for i in range(500)]
    judged = [f"q{i}\td{i * 31 % 500}\t1" for i in range(500)]
    folder: Path = write(corpus=many, queries=asked, qrels=judged, gz=True)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=rf"{file}:\d+: the gzip file is truncated"):
        read(folder)


def test_a_file_that_is_no_gzip_at_all_is_named(write: Any) -> None:
    folder: Path = write(gz=True)
    (folder / "corpus.jsonl.gz").write_bytes(b"this is not gzip")
    with pytest.raises(InputError, match=r"corpus\.jsonl\.gz:1: .*damaged"):
        read(folder)


def test_bytes_that_are_no_text_are_named(write: Any) -> None:
    folder: Path = write(corpus=[D1], queries=[Q1], qrels=["q1\td1\t1"])
    (folder / "corpus.jsonl").write_bytes(json.dumps(D1).encode() + b"\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"corpus\.jsonl:2: not UTF-8"):
        read(folder)


def test_missing_files_and_folders_are_named(write: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no qrels\.tsv"):
        read(write(qrels=None, name="a"))
    with pytest.raises(InputError, match=r"no queries\.jsonl"):
        read(write(queries=None, name="b"))


def test_flawed_rows_can_be_left_out_and_are_named(write: Any) -> None:
    folder = write(
        corpus=[D1, D1],
        queries=[Q1, {"_id": "q2", "text": ""}],
        qrels=["q1\td1\t1", "q2\td1\t1", "q1\tnowhere\t1"],
    )
    dataset = read(folder, skip_bad=True)
    assert [q.id for q in dataset.queries] == ["q1"] and dataset.qrels == {"q1": {"d1": 1}}
    assert "4 flawed rows were skipped: corpus.jsonl:2" in dataset.notes[-1]


def test_the_greatest_relevance_still_counts(write: Any) -> None:
    qrels = [f"q1\td1\t{datasets.GREATEST_GRADE}", "q1\td2\t1"]
    two = [D1, {**D1, "_id": "d2"}]
    dataset = read(write(corpus=two, queries=[Q1], qrels=qrels))
    (first,) = metrics.per_query(dataset.qrels, {"q1": ["d1"]})["recall@1"].values()
    (whole,) = metrics.per_query(dataset.qrels, {"q1": ["d1", "d2"]})["ndcg@10"].values()
    assert (first, whole) == (0.5, 1.0)


def test_a_byte_order_mark_and_blank_lines_are_no_flaw(write: Any) -> None:
    folder: Path = write(corpus=[D1], queries=[Q1], qrels=["q1\td1\t1", ""])
    rows = b"\xef\xbb\xbf" + json.dumps(Q1).encode() + b"\r\n\r\n"
    (folder / "queries.jsonl").unlink()
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(rows))
    assert [q.text for q in read(folder).queries] == ["keel bolts"]
