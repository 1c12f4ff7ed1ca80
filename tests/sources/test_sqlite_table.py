"""A user's own SQLite file as a source: what is found, in which order, and what holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clew
from clew.errors import ConfigError, SourceError
from clew.filter import Filter
from clew.sources import table_search
from clew.sources.sqlite import sqlite
from clew.text.parse import parse
from clew.types import Answer, Candidate

CONTEXT: Any = None
Row = tuple[Any, Any, Any, Any]
Ask = Callable[..., list[Candidate]]

NOTES: list[Row] = [
    ("n1", "Keel bolts", "The keel bolts are torqued to 80 newton metres.", "boat/keel.md"),
    ("n2", "Bilge", "The bilge pump runs when the keel is wet.", "boat/bilge.md"),
    ("n3", "Bread", "Sourdough wants patience and a warm shelf.", "kitchen/bread.md"),
    ("n4", "Diary", "Dreamt of a keel again.", "personal/diary.md"),
    ("n5", "Café", "Le café est fermé; кофе в Москве; 京都のコーヒー.", "travel/cafe.md"),
]
KINDS = ("fts", "plain", "seen")


def write(file: Path, rows: Iterable[Row] = NOTES) -> Path:
    """The same rows as an FTS5 table, as an ordinary one and as a view."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE plain (key TEXT, head TEXT, body TEXT, place TEXT)")
        db.execute("CREATE VIEW seen AS SELECT * FROM plain")
        db.execute(
            "CREATE VIRTUAL TABLE fts USING fts5 "
            "(key UNINDEXED, head, body, place UNINDEXED, tokenize = 'porter unicode61')"
        )
        for row in rows:
            db.execute("INSERT INTO plain VALUES (?, ?, ?, ?)", row)
            db.execute("INSERT INTO fts VALUES (?, ?, ?, ?)", row)
        db.commit()
    return file


def asking(file: Path, table: str, **options: Any) -> Ask:
    """A source on one of these tables, as a function of the query."""
    named = {"text": "body", "id": "key", "title": "head", "path": "place", "seconds": 60}
    source = sqlite(file.parent, file=file.name, table=table, **{**named, **options})

    def ask(query: str, **asked: Any) -> list[Candidate]:
        found = source(parse(query, **asked), CONTEXT)
        assert not isinstance(found, Answer), found.problem
        return list(found)

    return ask


def ids(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.id.removeprefix("sqlite:") for candidate in candidates]


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(tmp_path: Path, table: str) -> Ask:
    return asking(write(tmp_path / "notes.db"), table)


# ---------------------------------------------------------------- what is found


def test_a_row_is_found_by_its_words_and_brings_its_passage(ask: Ask) -> None:
    (first, *_) = ask("keel bolts")
    assert first.id == "sqlite:n1" and first.chunk is None
    assert first.passage is not None
    record = first.passage.record
    assert (record.title, record.path) == ("Keel bolts", "boat/keel.md")
    assert (record.type, record.collection) == ("sqlite", "sqlite")
    assert first.passage.text == NOTES[0][2] and first.passage.lines == (1, 1)


def test_scores_are_shares_best_first_and_equal_ones_by_id(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [(f"r{i}", "", "a keel and no more", None) for i in (3, 1, 2)]
    found = asking(write(tmp_path / "d.db", [*rows, ("b", "", "keel bolts", None)]), table)
    answer = found("keel bolts rudder")
    assert ids(answer) == ["b", "r1", "r2", "r3"]
    scores = [candidate.score for candidate in answer]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


def test_a_row_with_every_word_in_title_or_text_scores_one(ask: Ask) -> None:
    best = ask("keel bolts")[0]
    assert best.score == 1.0


def test_a_word_in_the_title_counts_for_more(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [
        ("a", "Other", "A rudder is on the list of parts.", None),
        ("b", "Rudder", "A thing that is on the list of parts.", None),
    ]
    assert ids(asking(write(tmp_path / "d.db", rows), table)("rudder")) == ["b", "a"]


def test_a_rare_word_counts_for_more_than_a_frequent_one(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [(f"r{i:02}", "", "a manual of something", None) for i in range(30)]
    rows.append(("x", "", "the sextant in its box", None))
    answer = asking(write(tmp_path / "d.db", rows), table)("sextant manual", limit=3)
    assert ids(answer)[0] == "x"


def test_another_form_of_a_word_is_found(ask: Ask) -> None:
    assert "n1" in ids(ask("bolt"))
    assert "n2" in ids(ask("pumps"))


def test_stopwords_bring_nothing(ask: Ask) -> None:
    assert ids(ask("what is the sourdough")) == ["n3"]


def test_accents_and_other_scripts_are_found(ask: Ask) -> None:
    assert ids(ask("cafe")) == ["n5"]
    assert ids(ask("Москве")) == ["n5"]
    assert ids(ask("京都")) == ["n5"]


def test_a_word_that_is_nowhere_finds_nothing(ask: Ask) -> None:
    assert ask("xylophone") == []


def test_a_query_of_signs_alone_finds_nothing(ask: Ask) -> None:
    assert ask("??? …") == []


def test_no_more_than_the_depth_is_given(ask: Ask) -> None:
    assert len(ask("keel", depth=2, limit=2)) == 2


# ---------------------------------------------------------------- what holds


def test_a_phrase_must_be_there(ask: Ask) -> None:
    assert ids(ask('"keel bolts"')) == ["n1"]
    assert ask('"bolts keel"') == []
    assert ids(ask('"keel is wet" pump')) == ["n2"]


def test_what_is_excluded_is_not_there(ask: Ask) -> None:
    assert ids(ask("keel -bilge -dreamt")) == ["n1"]
    assert "n1" not in ids(ask('keel -"keel bolts"'))


def test_filters_hold_before_the_cut(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [(f"a{i:03}", "Keel", "keel keel keel", "out/x.md") for i in range(300)]
    rows += [(f"z{i}", "", "somewhere in here is the word keel", f"in/{i}.md") for i in range(3)]
    ask = asking(write(tmp_path / "d.db", rows), table)
    assert ids(ask("keel", filter=Filter(path="in/"), depth=3, limit=3)) == ["z0", "z1", "z2"]
    assert ids(ask("keel path:in/*1*", depth=3, limit=3)) == ["z1"]
    assert ids(ask("keel", filter=Filter(ids="sqlite:z2"), depth=1, limit=1)) == ["z2"]


@pytest.mark.parametrize(
    "wanted", [Filter(type="markdown"), Filter(tags="x"), Filter(collection="notes")]
)
def test_a_filter_for_what_rows_do_not_have_leaves_the_file_alone(
    tmp_path: Path, wanted: Filter
) -> None:
    assert asking(tmp_path / "not-there.db", "plain")("keel", filter=wanted) == []


def test_personal_rows_are_of_the_personal_domain(ask: Ask) -> None:
    seen = ids(ask("keel", filter=Filter(not_domain="personal")))
    assert "n4" not in seen and "n1" in seen
    assert ids(ask("keel", filter=Filter(domain="personal"))) == ["n4"]


def test_a_whole_table_can_be_of_a_domain_and_a_collection(tmp_path: Path, table: str) -> None:
    file = write(tmp_path / "d.db")
    ask = asking(file, table, domain="personal", collection="diary")
    assert ask("keel", filter=Filter(not_domain="personal")) == []
    assert "n1" in ids(ask("keel", filter=Filter(collection="diary")))


def test_a_record_comes_once_however_many_rows_it_has(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [("same", "", "keel", None), ("same", "", "keel bolts torque", None)] * 3
    answer = asking(write(tmp_path / "d.db", rows), table)("keel bolts torque")
    assert ids(answer) == ["same"]
    assert answer[0].passage is not None and "bolts" in answer[0].passage.text


# ---------------------------------------------------------------- whatever is in the table


def test_rows_without_text_or_with_bytes_and_numbers_do_no_harm(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [
        ("null", None, None, None),
        (None, "keel", "a row without an id", None),
        ("bytes", "", b"keel of bytes", None),
        ("number", 4471, 4471, 4471),
    ]
    file = write(tmp_path / "d.db", rows)
    with closing(sqlite3.connect(file)) as db:
        for name in ("plain", "fts"):
            db.execute(f"INSERT INTO {name} VALUES ('bad', '', CAST(x'6b65656cff' AS TEXT), NULL)")
        db.commit()
    ask = asking(file, table)
    assert "bad" in ids(ask("keel bytes")) or "bytes" in ids(ask("keel bytes"))
    assert None not in ids(ask("row without id"))
    (number,) = ask("4471")
    assert number.passage is not None and number.passage.record.title == "4471"


def test_of_a_long_row_the_passage_with_the_words_is_shown(tmp_path: Path, table: str) -> None:
    filler = "Nothing of interest happens in this paragraph.\n\n" * 200
    text = f"{filler}The keel bolts were torqued on Tuesday.\n\n{filler}"
    (found,) = asking(write(tmp_path / "d.db", [("l", "", text, None)]), table)("keel bolts torque")
    assert found.passage is not None
    assert "torqued on Tuesday" in found.passage.text and len(found.passage.text) <= 1500
    first, last = found.passage.lines
    assert "torqued" in "\n".join(text.split("\n")[first - 1 : last])


def test_rows_are_known_by_their_number_where_no_id_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "d.db")
    for table in ("plain", "fts"):
        assert ids(asking(file, table, id="rowid")("sourdough")) == ["3"]


def test_names_of_tables_and_columns_may_have_any_characters(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute('CREATE TABLE "my ""odd"" table; --" ("the ""text"" %" TEXT, "select" TEXT)')
        db.execute('INSERT INTO "my ""odd"" table; --" VALUES (?, ?)', ("a keel", "k"))
        db.commit()
    ask = asking(file, 'MY "odd" table; --', text='the "TEXT" %', id="Select", title="", path="")
    assert ids(ask("keel")) == ["k"]


def test_only_the_named_columns_are_searched(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [("a", "sextant", "a keel", None)]
    ask = asking(write(tmp_path / "d.db", rows), table, title="")
    assert ids(ask("keel")) == ["a"] and ask("sextant") == []


@pytest.mark.parametrize(
    "made",
    [
        "fts5 (key UNINDEXED, head, body, place UNINDEXED)",
        "fts5 (key UNINDEXED, head, body, place UNINDEXED, detail = none)",
        "fts5 (key UNINDEXED, head, body, place UNINDEXED, detail = 'column')",
        "fts5 (key UNINDEXED, head, body, place UNINDEXED, prefix = '2 3', columnsize = 0)",
        'fts5 (key UNINDEXED, head, body, place UNINDEXED, tokenize = "trigram")',
        "fts5 (key, head, body, place, content = 'plain')",
    ],
)
def test_fts5_tables_of_every_make_are_asked(tmp_path: Path, made: str) -> None:
    file = write(tmp_path / "d.db")
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"CREATE VIRTUAL TABLE other USING {made}")
        db.execute("INSERT INTO other (rowid, key, head, body, place) SELECT rowid, * FROM plain")
        db.commit()
    ask = asking(file, "other")
    assert ids(ask("keel bolts"))[0] == "n1"
    assert ids(ask("newton-metres torqued")) == ["n1"]
    assert ids(ask('"bilge pump"')) == ["n2"]
    assert "n2" not in ids(ask("keel -pump"))
    assert ids(ask("80")) == ["n1"]  # too short for trigrams: looked through
    assert "n5" in ids(ask("京都のコ"))


def test_words_that_most_rows_have_are_ranked_by_their_titles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_search, "MANY", 5)
    monkeypatch.setattr(table_search, "SAMPLE", 5)
    rows: list[Row] = [(f"t{i}", "" if i % 9 else "Keel", "a keel here", None) for i in range(90)]
    rows += [("w", "", "a rare wherry", None), ("wk", "", "a wherry with a keel", None)]
    ask = asking(write(tmp_path / "d.db", rows), "fts")
    assert set(ids(ask("keel", limit=10))) == {f"t{i}" for i in range(0, 90, 9)}
    assert len(ask("keel", limit=11)) == 50
    found = ids(ask("keel wherry", limit=5))
    assert set(found[:2]) == {"wk", "w"}  # too few: those that are called Keel follow
    assert set(found[2:]) == {f"t{i}" for i in range(0, 90, 9)}


def test_filters_hold_before_the_cut_among_frequent_words_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_search, "MANY", 5)
    monkeypatch.setattr(table_search, "SAMPLE", 5)
    rows: list[Row] = [(f"a{i:02}", "Keel", "keel", "out/") for i in range(80)]
    rows += [("z", "", "a keel somewhere", "in/"), ("r", "", "a rare rudder", "out/")]
    ask = asking(write(tmp_path / "d.db", rows), "fts")
    assert ids(ask("keel rudder", filter=Filter(path="in/"))) == ["z"]
    assert ids(ask("keel rudder -keel", limit=3)) == ["r"]


def test_a_pasted_page_is_a_query_too(tmp_path: Path, table: str) -> None:
    rows: list[Row] = [*NOTES, ("page", "", " ".join(f"word{i}" for i in range(900)), None)]
    ask = asking(write(tmp_path / "d.db", rows), table)
    assert ids(ask(" ".join(f"word{i}" for i in range(500))))[0] == "page"


# ---------------------------------------------------------------- in a search


def test_a_search_shows_rows_beside_records_of_the_store(tmp_path: Path) -> None:
    write(tmp_path / "notes.db")
    with clew.open(tmp_path, model="none") as engine:
        engine.add([{"id": "mine", "content": "my own keel"}])
        engine.sources["notes"] = sqlite(
            tmp_path, file="notes.db", table="fts", text="body", id="key", title="head"
        )
        found = engine.search("keel bolts")
    assert {"mine", "sqlite:n1"} <= {hit.id for hit in found}
    hit = next(hit for hit in found if hit.id == "sqlite:n1")
    assert hit.source == "notes" and "torqued" in hit.snippet and hit.highlights
    assert not any("notes" in problem for problem in found.degraded)


def test_rows_of_two_tables_are_never_taken_for_one(tmp_path: Path) -> None:
    for name in ("mails", "notes"):
        write(tmp_path / f"{name}.db", [("1", "", f"a keel among {name}", f"{name}.txt")])
    table = {"kind": "sqlite", "table": "plain", "text": "body", "id": "key"}
    asked = {
        "mails": {**table, "file": "mails.db", "collection": "all"},
        "notes": {**table, "file": "notes.db", "collection": "all"},
    }
    with clew.open(tmp_path, model="none", sources=asked) as engine:
        engine.add([{"id": "1", "content": "my own keel"}])
        found = {hit.id: hit.content for hit in engine.search("keel")}
    assert found == {
        "mails:1": "a keel among mails",
        "notes:1": "a keel among notes",
        "1": "my own keel",
    }


def test_a_row_is_personal_in_whatever_words_that_is_said(tmp_path: Path) -> None:
    write(tmp_path / "notes.db", [("1", "", "a keel", "mine/1.txt"), ("2", "", "a keel", "o.txt")])
    table = {"kind": "sqlite", "table": "plain", "text": "body", "id": "key", "path": "place"}
    asked = {
        "all": {**table, "file": "notes.db"},
        "own": {**table, "file": "notes.db", "domain": " Personal"},
    }
    with clew.open(tmp_path, model="none", sources=asked, domains={"Personal": ["mine"]}) as engine:
        assert {hit.id for hit in engine.search("keel")} == {"all:2"}
        assert len(engine.search("keel", include_personal=True)) == 4


def test_a_search_goes_on_when_the_file_is_gone(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([{"id": "mine", "content": "my own keel"}])
        engine.sources["notes"] = sqlite(tmp_path, file="gone.db", table="t", text="x")
        found = engine.search("keel")
    assert [hit.id for hit in found] == ["mine"]
    assert any("gone.db is not there" in problem for problem in found.degraded)
    assert not (tmp_path / "gone.db").exists()


# ---------------------------------------------------------------- any query at all


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write(tmp_path_factory.mktemp("any") / "notes.db")
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE VIRTUAL TABLE tri USING fts5 (key, head, body, place, tokenize=trigram)")
        db.execute("CREATE VIRTUAL TABLE bare USING fts5 (key, head, body, place, detail=none)")
        for name in ("tri", "bare"):
            db.execute(f"INSERT INTO {name} SELECT * FROM plain")
        db.commit()
    return file


_SIGNS = "\"'`*^:(){}[]+-_%\\;?@|&<>=~$#!,./ \n\t\0"
_PIECES = st.one_of(
    st.text(max_size=12),
    st.text(_SIGNS, max_size=6),
    st.sampled_from(
        ["keel", "bolts", '"keel bolts"', "-pump", "NEAR(", "AND", "OR", "NOT", "京都"]
    ),
    st.sampled_from(["body:", "{body}:", "'; DROP TABLE plain; --", "%' OR 1=1 --", "path:boat/"]),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(_PIECES, max_size=6), table=st.sampled_from([*KINDS, "tri", "bare"]))
def test_any_query_is_answered_and_leaves_the_file_as_it_was(
    shared: Path, pieces: list[str], table: str
) -> None:
    try:
        query = parse(" ".join(pieces))
    except clew.InputError:
        return  # a filter that makes no sense
    before = shared.read_bytes()
    source = sqlite(
        shared.parent, file=shared.name, table=table, text="body", id="key", title="head"
    )
    try:
        found = source(query, CONTEXT)
    except SourceError:
        found = ()
    assert not isinstance(found, Answer)
    assert all(0 <= c.score <= 1 for c in found)
    assert len({c.id for c in found}) == len(found) <= query.depth
    assert [(c.score, c.id) for c in found] == sorted(
        [(c.score, c.id) for c in found], key=lambda pair: (-pair[0], pair[1])
    )
    assert shared.read_bytes() == before
    assert [file.name for file in shared.parent.iterdir()] == [shared.name]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file": ""}, "file"),
        ({"file": "a\0b"}, "file"),
        ({"table": ""}, "table"),
        ({"text": ""}, "text"),
        ({"id": ""}, "id"),
        ({"collection": ""}, "collection"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        sqlite(tmp_path, **{"file": "d.db", "table": "t", "text": "x", **options})


@pytest.mark.parametrize("table", [{}, {"file": "d.db"}])
def test_settings_that_leave_out_what_is_needed_say_what(
    tmp_path: Path, table: dict[str, str]
) -> None:
    (tmp_path / "clew.toml").write_text(
        '[sources.notes]\nkind = "sqlite"\n' + "".join(f'{k} = "{v}"\n' for k, v in table.items()),
        "utf-8",
    )
    with pytest.raises(ConfigError, match=r"\[sources.notes\]: .*table and text must be given"):
        clew.open(tmp_path, model="none")


def test_a_file_is_relative_to_the_folder_or_absolute(tmp_path: Path) -> None:
    write(tmp_path / "d.db")
    for file in ("d.db", str(tmp_path / "d.db")):
        source = sqlite(tmp_path, file=file, table="plain", text="body")
        assert source(parse("sourdough"), CONTEXT)
