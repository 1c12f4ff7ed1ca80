"""Late interaction as a step of a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.config import load
from clew.ranking.adaptive import Facts, share_of_late
from clew.store import open_store
from clew.types import Record, Vectors

from hashing import HashingEmbedder, Words

TEXTS = {
    "hull": "The hull was painted in spring. Paint needs two days to dry.",
    "crane": "A crane lifts the engine. The crane is inspected every year.",
    "sail": "Sails are dried before they are stored for the winter.",
    "code": "Order part TX-4471-B for the winch.",
    "marks": "... !!! ,,,",
    "long": " ".join(["rope"] * 250),
}


def engine(folder: Path, model: Words | None, **settings: Any) -> clew.Engine:
    made = clew.Engine(
        open_store("", base=folder, folder=folder / ".clew"),
        config=load(None, {"cache": False, **settings}),
        root=folder,
        embedder=HashingEmbedder(dim=64),
        late_interaction=model,
    )
    made.add(Record(id=name, content=text) for name, text in TEXTS.items())
    return made


def test_all_candidates_are_read_from_codes_and_have_a_say(tmp_path: Path) -> None:
    with engine(tmp_path, words := Words(), late_interaction="on") as opened:
        opened.embed()
        assert sorted(words.encoded) == sorted(TEXTS.values())
        status = opened.status()
        assert status["late_interaction"]["share"] == 1
        assert status["bytes"]["token codes"] == status["late_interaction"]["bytes"] > 0
        found = opened.search("when is the crane inspected", explain=True)
        said = found.trace["late"]
        assert len(words.encoded) == len(TEXTS) and said["read"] == said["of"] > 0
        assert found[0].id == "crane" and 0 < said["share"] <= 1 and not found.degraded
        assert found.trace["fusion"]["share_of_late"] == said["share"]
        for hit in found:
            parts = [signal["contrib"] for signal in hit.signals.values()]
            assert hit.score == pytest.approx(sum(parts))
        assert ("crane", "crane") in [(a, b) for a, b, _ in said["words"]["crane"]]


def test_a_store_of_nothing_but_passages_without_tokens_is_searched(tmp_path: Path) -> None:
    class Wordless(Words):
        def words(self, text: str, *, query: bool = False) -> list[str]:
            return [word for word in super().words(text) if word not in (".", "wordless")]

        def _rows(self, text: str) -> Vectors:
            return super()._rows(text) if self.words(text) else np.empty((0, 96), np.float32)

        def score(self, query: Vectors, passages: Sequence[Vectors]) -> list[float]:
            return [super(Wordless, self).score(query, [p])[0] if len(p) else 0.0 for p in passages]

    with engine(tmp_path, Wordless(), late_interaction="on") as opened:
        opened.remove(list(TEXTS))
        opened.add([Record(id="marks", content="... !!! ,,,")])
        opened.embed()
        for asked in ("crane", "wordless"):
            assert opened.search(asked, syntax=False)[0].id == "marks"


def test_the_doctor_sees_damaged_codes_and_mending_drops_those_alone(tmp_path: Path) -> None:
    with engine(tmp_path, Words(), late_interaction="on") as opened:
        opened.embed()
        assert all(row["ok"] for row in opened.doctor() if "codes" in row["check"])
    (file,) = (tmp_path / ".clew").glob("tokens-*/codes-*.bin")
    file.write_bytes(bytes([file.read_bytes()[0] ^ 4]) + file.read_bytes()[1:])
    with engine(tmp_path, words := Words(), late_interaction="on") as opened:
        (said,) = (row for row in opened.doctor() if "codes" in row["check"])
        assert not said["ok"] and "--mend" in said["advice"]
        opened.doctor(mend=True)
        assert all(row["ok"] for row in opened.doctor() if "codes" in row["check"])
        opened.embed()
        assert words.encoded == [TEXTS["hull"]]


def test_a_search_notices_damaged_codes(tmp_path: Path) -> None:
    with engine(tmp_path, Words(), late_interaction="on", late_seconds=0) as opened:
        opened.embed()
    (file,) = (tmp_path / ".clew").glob("tokens-*/codes-*.bin")
    data = bytearray(file.read_bytes())
    for at in range(0, len(data), 40):
        data[at] ^= 4
    file.write_bytes(data)
    with engine(tmp_path, Words(), late_interaction="on", late_seconds=0) as opened:
        found = opened.search("when is the crane inspected")
        assert found[0].id == "crane" and found.trace["late"]["read"] == 0
        assert any("doctor --mend" in problem for problem in found.degraded)


def test_codes_of_what_was_deleted_go_though_it_is_off_by_now(tmp_path: Path) -> None:
    with engine(tmp_path, Words(), late_interaction="on") as opened:
        opened.embed()
        before = opened.status()["late_interaction"]["passages"]
    with engine(tmp_path, None) as opened:
        opened.remove("crane")
        opened.vacuum()
    with engine(tmp_path, words := Words(), late_interaction="on") as opened:
        assert opened.status()["late_interaction"]["passages"] == before - 1
        opened.embed()
        assert words.encoded == [TEXTS["crane"]]  # which this function has added again


def test_off_is_as_it_was(tmp_path: Path) -> None:
    with engine(tmp_path, words := Words()) as opened:
        opened.embed()
        found = opened.search("when is the crane inspected")
        assert "late" not in found.trace and not words.encoded
        assert opened.status()["late_interaction"] == {"setting": "off"}
        assert not list((tmp_path / ".clew").glob("tokens*"))


def test_lazily_a_passage_is_encoded_once(tmp_path: Path) -> None:
    patient = {"late_interaction": "lazy", "late_seconds": 60}
    with engine(tmp_path, words := Words(), **patient) as opened:
        opened.embed()
        assert not words.encoded
        first = opened.search("crane winter paint")
        assert words.encoded and first.trace["late"]["read"] == first.trace["late"]["of"]
        before = len(words.encoded)
        again = opened.search("crane winter paint")
        assert len(words.encoded) == before
        assert [hit.id for hit in again] == [hit.id for hit in first]


def test_what_there_is_no_time_for_keeps_its_place(tmp_path: Path) -> None:
    settings = {"late_interaction": "lazy", "late_seconds": 0}
    with engine(tmp_path, words := Words(), **settings) as opened:
        opened.embed()
        found = opened.search("crane winter paint")
        assert not words.encoded and any("late interaction: 0 of" in p for p in found.degraded)
        hits = [hit.id for hit in found]
    with engine(tmp_path, None) as opened:
        assert [hit.id for hit in opened.search("crane winter paint")] == hits


def test_an_unchanged_or_moved_passage_is_never_encoded_again(tmp_path: Path) -> None:
    with engine(tmp_path, words := Words(), late_interaction="on") as opened:
        opened.embed()
        opened.remove("crane")
        opened.add([Record(id="moved", content=TEXTS["crane"])])
        opened.embed()
        assert len(words.encoded) == len(TEXTS)
        opened.add([Record(id="new", content="A new word about anchors.")])
        opened.embed()
        assert words.encoded[len(TEXTS) :] == ["A new word about anchors."]
        opened.vacuum()
        assert opened.status()["late_interaction"]["passages"] == len(TEXTS) + 1
        opened.remove("new")
        opened.vacuum()
        assert opened.status()["late_interaction"]["passages"] == len(TEXTS)


def test_damaged_codes_cost_nothing_but_their_say(tmp_path: Path) -> None:
    with engine(tmp_path, Words(), late_interaction="on", late_seconds=0) as opened:
        opened.embed()
    for file in (tmp_path / ".clew").glob("tokens-*/codebook-*"):
        file.write_bytes(b"torn")
    with engine(tmp_path, words := Words(), late_interaction="on", late_seconds=0) as opened:
        found = opened.search("when is the crane inspected")
        assert found[0].id == "crane" and found.trace["late"]["read"] == 0 and not words.encoded
        opened.embed()
        assert opened.search("when is the crane inspected").trace["late"]["read"] > 0


@pytest.mark.parametrize("query", ["crane", "rope " * 2000, "?", "TX-4471-B", "起重机"])
def test_any_query_is_answered(tmp_path: Path, query: str) -> None:
    with engine(tmp_path, Words(), late_interaction="on") as opened:
        opened.embed()
        opened.search(query, syntax=False)


def test_a_script_that_the_model_does_not_know_gives_it_no_say(tmp_path: Path) -> None:
    class Latin(Words):
        model = "colbert-small@1"

    with engine(tmp_path, Latin(), late_interaction="on") as opened:
        opened.add([Record(id="zh", content="起重机每年检查一次。")])
        opened.embed()
        for asked in ("起重机检查", "Liebherr起重机检查"):  # a name in letters it knows is no help
            found = opened.search(asked)
            assert found[0].id == "zh" and "share" not in found.trace["late"] and not found.degraded
        assert "share" in opened.search("β-crane yearly inspection").trace["late"]


def test_without_weights_a_search_is_as_before_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "none"))
    with engine(tmp_path, None) as opened:
        opened.embed()
        wanted = [(hit.id, hit.score) for hit in opened.search("crane winter paint")]
    with engine(tmp_path, None, late_interaction="on", offline=True) as opened:
        found = opened.search("crane winter paint")
        assert [(hit.id, hit.score) for hit in found] == wanted
        assert any("clew models pull colbert-small" in problem for problem in found.degraded)
        assert "clew models pull" in opened.status()["late_interaction"]["problem"]
        assert any("no late interaction" in note for note in opened.index(tmp_path).notes)


SEEN = {"confidence": 0.3, "coverage": 0.5, "lead": 0.3, "accord": 0.6, "length": 0.0, "code": 0.0}


def test_where_the_words_have_said_it_late_interaction_is_silent() -> None:
    assert share_of_late(SEEN, Facts()) > 0.4
    shares = [share_of_late({**SEEN, "coverage": c}, Facts()) for c in (0.9, 1.0, 1.1, 1.2, 2.0)]
    assert shares == sorted(shares, reverse=True) and shares[-2:] == [0.0, 0.0]
    assert Facts().late == 0


def test_short_passages_give_it_more_of_a_say() -> None:
    shares = [share_of_late({**SEEN, "length": n}, Facts()) for n in (-2.0, -1.0, 0.0, 1.0)]
    assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1] + 0.1


ABOUT = "what reads the first head of a table from disk and keeps it"
PROGRAM = "def load(path):\n    for line in open(path):\n        rows[line] = parse(line)[0]\n"


def test_among_programs_it_is_silent_and_among_what_is_written_about_them_not(
    tmp_path: Path,
) -> None:
    with engine(tmp_path / "prose", Words(), late_interaction="on") as opened:
        prose = "The loader opens a path and gives the rows of it, of which the first is the head. "
        opened.add(Record(id=f"{i}", content=f"{prose * 5}See load() ({i}).") for i in range(12))
        opened.embed()
        said = opened.search("what reads the first head of a table from disk and keeps it").trace[
            "late"
        ]
        assert said["share"] > 0 and said["because"]["code"] < 0.012
    with engine(tmp_path / "code", Words(), late_interaction="on") as opened:
        opened.remove(list(TEXTS))
        opened.add(Record(id=f"{i}", content=f"{PROGRAM * 5}# {i}") for i in range(12))
        opened.embed()
        said = opened.search("what reads the first head of a table from disk and keeps it").trace[
            "late"
        ]
        assert said["read"] == said["of"] and said["share"] == 0 < said["because"]["code"]


def test_a_share_of_nothing_leaves_the_order_as_it_was(tmp_path: Path) -> None:
    """Names and codes that stand in the text are found by their words: all of them are covered."""
    asked = "part TX-4471-B"
    with engine(tmp_path, None) as opened:
        opened.embed()
        wanted = [(hit.id, hit.score) for hit in opened.search(asked)]
    with engine(tmp_path, Words(), late_interaction="on") as opened:
        opened.embed()
        found = opened.search(asked)
        assert found.trace["late"]["share"] == 0 and found.trace["late"]["read"] > 0
        assert [(hit.id, hit.score) for hit in found] == wanted


def test_a_recall_and_an_agentic_search_read_token_by_token_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Words()
    monkeypatch.setenv("CLEW_LATE_INTERACTION", "lazy")
    monkeypatch.setenv("CLEW_LATE_SECONDS", "60")
    monkeypatch.setattr("clew.search.token_match.load_late_interaction", lambda *_, **__: words)
    with clew.Memory(tmp_path / "memory.db", embedder=HashingEmbedder(dim=64)) as memory:
        memory.remember_many([{"content": text} for text in TEXTS.values()])
        found = memory.recall("when is the crane inspected")
        assert found[0].content == TEXTS["crane"] and TEXTS["crane"] in words.encoded
        assert found[0].signals["late_interaction"]["rank"] == 1
    with engine(tmp_path, words, late_interaction="on") as opened:
        opened.embed()
        answer = clew.agentic_search("when is the crane inspected", engine=opened)["results"]
        assert answer[0]["id"] == "crane" and "late_interaction" in answer[0]["signals"]


CODES = {
    "TX-9902-C": "Order part TX-9902-C for the pump, not the older one.",
    "ERR-2087": "When ERR-2087 shows on the panel, stop the pump.",
    "parseHeader": "def parseHeader(line): return line.split()",
    "max_retries": "The client gives up after max_retries attempts.",
    "nodeSelector": "Set nodeSelector to choose the machines.",
}


@pytest.mark.parametrize("code", CODES)
def test_identifiers_do_not_lose_to_it(tmp_path: Path, code: str) -> None:
    """Even where it is sure of something else."""

    class Misled(Words):
        model = "misled@1"

        def _rows(self, text: str) -> Vectors:
            sure: Vectors = np.eye(96, dtype=np.float32)[[0, 0, 0]]
            return super()._rows(text) if text in CODES.values() else sure

    with engine(tmp_path, Misled(), late_interaction="on") as opened:
        opened.add(Record(id=name, content=text) for name, text in CODES.items())
        opened.embed()
        found = opened.search(code)
        assert found[0].id == opened.search(code, mode="keyword")[0].id == code
        assert found.trace["late"]["read"] == found.trace["late"]["of"] > 1
