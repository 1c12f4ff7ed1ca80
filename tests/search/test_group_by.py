"""What a hit is: a record, or a passage of one; how many of one file; and where it stands."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.engine import Engine
from clew.ranking.fusion import STRATEGIES, fuse
from clew.types import Candidate
from documents import pdf

from hashing import HashingEmbedder

TOPICS = ("hull", "keel", "mast", "sail", "deck", "helm")


def page(topic: str, number: int) -> str:
    return f"## {topic} {number}\n\n" + f"The {topic} of the boat, part {number}. " * 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "boat"
    made.mkdir()
    handbook = "\n\n".join(page("keel", i) for i in range(12))
    (made / "handbook.md").write_text(f"# Handbook\n\n{handbook}", "utf-8")
    for i in range(6):
        (made / f"note{i}.md").write_text(f"# Note {i}\n\nA keel, seen once, and {TOPICS[i]}.")
    return made


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    with clew.open(folder, embedder=HashingEmbedder()) as opened:
        opened.index()
        yield opened


def files(engine: Engine, **options: object) -> Counter[str]:
    found = engine.search("keel of the boat", cache=False, **options)  # type: ignore[arg-type]
    return Counter(str(hit.path) for hit in found)


def test_a_long_file_may_win_more_than_once_and_crowds_nobody_out(engine: Engine) -> None:
    found = files(engine, limit=9)
    assert found["handbook.md"] == 3
    assert len(found) == 7  # every note is there


def test_where_nothing_else_is_found_there_is_more_of_it(engine: Engine) -> None:
    found = files(engine, limit=12)
    assert found["handbook.md"] == 6 and len(found) == 7


def test_a_record_is_one_hit_if_that_is_wanted(engine: Engine) -> None:
    assert set(files(engine, limit=12, group_by="record").values()) == {1}


def test_each_passage_for_itself(engine: Engine) -> None:
    found = files(engine, limit=18, group_by="passage", max_per_file=18)
    parts = engine.store.vectors.chunks(["boat:handbook.md"])["boat:handbook.md"]
    assert found["handbook.md"] == len(parts) > 6 and len(found) == 7


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("fusion", sorted(STRATEGIES))
def test_at_most_so_many_of_one_file(engine: Engine, most: int, fusion: str) -> None:
    found = files(engine, limit=8, max_per_file=most, fusion=fusion)
    assert max(found.values()) == most and sum(found.values()) == 8 if most > 1 else True
    assert found["handbook.md"] == most


def test_rows_of_a_table_are_counted_as_of_one_file(engine: Engine, folder: Path) -> None:
    rows = "\n".join(f"{i},the keel of boat {i}" for i in range(20))
    (folder / "boats.csv").write_text(f"id,about\n{rows}\n", "utf-8")
    engine.index()
    assert files(engine, limit=10)["boats.csv"] > 3  # each is a record of its own
    assert files(engine, limit=10, max_per_file=2)["boats.csv"] == 2
    listed = engine.search("", filter={"path": "b"}, limit=10, max_per_file=2)
    assert [hit.path for hit in listed] == ["boats.csv", "boats.csv"]
    listed = engine.search("", filter={"collection": "boat"}, limit=10, max_per_file=2)
    assert Counter(hit.path for hit in listed)["boats.csv"] == 2 and len(listed) == 9


def test_passages_of_one_record_are_told_apart(engine: Engine) -> None:
    hits = [h for h in engine.search("keel of the boat", limit=9) if h.path == "handbook.md"]
    assert len({hit.chunk for hit in hits}) == len({hit.lines for hit in hits}) == 3
    assert {hit.id for hit in hits} == {"boat:handbook.md"}
    for hit in hits:
        assert hit.content in (engine.get(hit.id) or hit).content
        adds = sum(signal["contrib"] for signal in hit.signals.values())
        assert adds > 0 and hit.rrf_score == pytest.approx(adds)


def test_the_settings_say_it_too(folder: Path) -> None:
    with clew.open(folder, embedder=HashingEmbedder(), group_by="record") as engine:
        engine.index()
        assert set(files(engine).values()) == {1}
        assert files(engine, limit=9, group_by="passage")["handbook.md"] == 3
    with pytest.raises(clew.ConfigError, match="group_by"):
        clew.open(folder, group_by="page")


def test_an_answer_is_not_kept_for_another_grouping(engine: Engine) -> None:
    one = engine.search("keel", group_by="record")
    several = engine.search("keel", limit=10)
    assert several.cache is None and len(several) > len(one)
    assert engine.search("keel", max_per_file=2).cache is None


@pytest.mark.parametrize("mode", ["keyword", "vector"])
def test_what_was_written_just_now_has_passages_as_well(engine: Engine, mode: str) -> None:
    text = "\n\n".join(page("rudder", i) for i in range(16))
    engine.add([clew.Record(id="new", content=text, type="markdown")])
    engine.embed()
    found = engine.search("rudder", mode=mode, max_per_file=9)  # type: ignore[arg-type]
    parts = {held.number for held in engine.store.vectors.chunks(["new"])["new"]}
    assert {hit.chunk for hit in found if hit.id == "new"} == parts and len(parts) > 3


# ---------------------------------------------------------------- places


def test_a_page_of_a_pdf_is_a_hit_that_can_be_cited(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    for number in range(1, 13):
        writer.append(io.BytesIO(pdf(f"The keel on page {number}\nsecond line\nfathom {number}")))
    writer.write(tmp_path / "manual.pdf")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        found = engine.search("keel", limit=20, max_per_file=20)
        assert {hit.location for hit in found} == {f"page {n}" for n in range(1, 13)}
        assert len(engine.search("keel", limit=5)) == 5
        third = engine.search("fathom 3", mode="keyword")[0]  # far down the page, and still on it
        assert third.location == "page 3" and third.metadata["snippet_line"] == 3


def test_a_slide_is_a_hit_that_can_be_cited(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    deck = pptx.Presentation()
    for words in ("Opening words", "The keel", "Questions"):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = words
        slide.placeholders[1].text = "more"
    deck.save(tmp_path / "talk.pptx")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        assert engine.search("keel", mode="keyword")[0].location == "slide 2"


def test_a_paragraph_of_a_document_can_be_cited(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    for words in ("One", "Two", "The keel"):
        document.add_paragraph(words)
    document.save(tmp_path / "letter.docx")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        assert engine.search("keel", mode="keyword")[0].location == "paragraphs 1–3"


def test_the_line_of_a_snippet_is_one_of_the_file(tmp_path: Path) -> None:
    page = "<html><body>\n\n\n<p>hello</p>\n\n\n<p>the keel</p></body></html>\n"
    (tmp_path / "a.html").write_text(page, "utf-8")
    (tmp_path / "b.md").write_text("# Boat\n\n\n\nthe keel\n" + "x\n" * 200 + "the mast\n", "utf-8")
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.index()
        places = {h.path: h.location for h in engine.search("keel", mode="keyword")}
        assert places["b.md"] in ("line 1", "line 5")
        assert places["a.html"] in ("line 4", "line 7")  # where its passage begins, or the words
        assert engine.search("mast", mode="keyword")[0].location > "line 100"


# ---------------------------------------------------------------- fusing passages

LISTS = st.dictionaries(
    st.sampled_from(["keyword", "vectors", "tags"]),
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.floats(0, 1)),
        max_size=12,
        unique_by=lambda each: each[:2],
    ),
    max_size=3,
)


@given(LISTS, st.sampled_from(sorted(STRATEGIES)), st.floats(0.1, 1), st.integers(0, 3))
def test_further_passages_change_nothing_about_the_records(
    lists: dict[str, list[tuple[str, int, float]]], strategy: str, further: float, usual: int
) -> None:
    ranked = {
        name: sorted((Candidate(i, s, c) for i, c, s in some), key=lambda c: (-c.score, c.id))
        for name, some in lists.items()
    }
    records = fuse(strategy, ranked)
    both = fuse(strategy, ranked, further=further, usual=usual)
    assert [each for each in both if each.passage is None] == records
    named = {(c.id, c.chunk) for some in ranked.values() for c in some}
    assert len(both) == len(named)  # each passage once: a record's best is its own hit
    for each in both:
        if each.passage is not None:
            whole = next(one for one in records if one.id == each.id)
            assert each.score <= whole.score + 1e-9 and each.passage.id == each.id
    counts: Counter[str] = Counter()
    past = []
    for each in both:
        counts[each.id] += 1
        past.append(0 < usual < counts[each.id])
    assert past == sorted(past)  # what is past the usual number stands behind everything else
    assert fuse(strategy, ranked, further=further, usual=usual, head=2) == both[:2]
