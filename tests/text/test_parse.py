from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.errors import InputError
from clew.filter import Filter
from clew.text.parse import LONGEST_QUERY, MOST_WORDS, parse
from clew.types import Terms

unhurried = settings(deadline=None)


def words(text: str) -> list[str]:
    """The first token of each word the keyword leg looks for."""
    return [group[0] for group in parse(text).terms.words]


# ---------------------------------------------------------------- the syntax, piece by piece


def test_plain_words_are_words() -> None:
    query = parse("keel  bolts")
    assert query.text == "keel bolts"
    assert query.raw == "keel  bolts"
    assert query.terms == Terms(words=(("keel",), ("bolt",)))
    assert not query.filter


def test_a_quoted_phrase_must_occur_and_is_looked_for() -> None:
    query = parse('"dry dock" crane')
    assert query.terms.phrases == (("dri", "dock"),)
    assert words('"dry dock" crane') == ["dri", "dock", "crane"]
    assert query.text == "dry dock crane"


def test_a_minus_before_a_word_excludes_it() -> None:
    query = parse("keel -bolts")
    assert query.terms.excluded == (("bolt",),)
    assert query.text == "keel"
    assert words("keel -bolts") == ["keel"]


def test_a_minus_before_a_phrase_excludes_the_phrase() -> None:
    query = parse('keel -"dry dock"')
    assert query.terms.excluded == (("dri", "dock"),)
    assert query.terms.phrases == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tag:risk", Filter(tags_all="risk")),
        ("tag:#Risk", Filter(tags_all="risk")),
        ("tag:risk tag:crane", Filter(tags_all=["risk", "crane"])),
        ("path:projects/", Filter(path="projects/")),
        ("path:**/*.md", Filter(path="**/*.md")),
        ("path:a/ path:b/", Filter(path=["a/", "b/"])),
        ("type:markdown", Filter(type="markdown")),
        ("collection:notes", Filter(collection="notes")),
        ("after:2026-01-01", Filter(after="2026-01-01")),
        ("before:2026-07-01", Filter(before="2026-07-01")),
        ("after:2026-01-01T09:30", Filter(after=dt.datetime(2026, 1, 1, 9, 30))),
        ("TAG:risk Path:x", Filter(tags_all="risk", path="x")),
        ('tag:"case study"', Filter(tags_all="case study")),
        ('path:"my notes/"', Filter(path="my notes/")),
    ],
)
def test_a_field_narrows_and_is_no_word(text: str, expected: Filter) -> None:
    query = parse(f"keel {text} bolts")
    assert query.filter == expected
    assert query.text == "keel bolts"
    assert words(f"keel {text} bolts") == ["keel", "bolt"]


def test_everything_at_once() -> None:
    query = parse('crane "near miss" -keel tag:safety path:meetings/ after:2026-01-01')
    assert query.terms.words == (("crane",), ("near",), ("miss",))
    assert query.terms.phrases == (("near", "miss"),)
    assert query.terms.excluded == (("keel",),)
    assert query.filter == Filter(tags_all="safety", path="meetings/", after="2026-01-01")


def test_a_query_of_filters_alone_has_no_words() -> None:
    query = parse("tag:risk type:markdown")
    assert query.text == ""
    assert not query.terms
    assert query.filter


# ---------------------------------------------------------------- what is not syntax


@pytest.mark.parametrize(
    "text",
    [
        "well-being",
        "a - b",
        "keel -",
        "- keel",
        "10-12",
        "http://example.org/a-b?q=1#x",
        "https://user@host:8080/path:x",
        "foo:bar",
        "C:\\notes",
        "mytag:risk",
        "(tag:risk)",
        "tag: risk",
        "tag:",
        "std::vector",
        "author:me",
        "a/b -",
        "x AND y OR NOT z",
        "wild* ca?d [x] (y) {z} ^2 ~1 \\ / + | & ! = < >",
        "'; DROP TABLE records;",
    ],
)
def test_anything_else_is_just_words(text: str) -> None:
    query = parse(text)
    assert query.text == text
    assert query.terms.excluded == query.terms.phrases == ()
    assert not query.filter


def test_a_url_is_found_by_its_parts() -> None:
    assert words("http://example.org/keel") == ["http", "example.org", "keel"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"keel bolt', ["keel", "bolt"]),
        ('keel" bolt', ["keel", "bolt"]),
        ('tag:"keel bolt', ["tag", "keel", "bolt"]),
        ('-"keel bolt', ["keel", "bolt"]),
    ],
)
def test_an_unbalanced_quote_is_ignored(text: str, expected: list[str]) -> None:
    query = parse(text)
    assert words(text) == expected
    assert query.terms.phrases == ()
    assert query.terms.excluded == ()
    assert not query.filter


def test_a_balanced_pair_counts_before_an_unbalanced_quote() -> None:
    query = parse('"dry dock" "keel')
    assert query.terms.phrases == (("dri", "dock"),)
    assert words('"dry dock" "keel') == ["dri", "dock", "keel"]


def test_a_minus_behind_a_quote_excludes_nothing() -> None:
    query = parse('"dry dock"-keel')
    assert query.terms.excluded == ()
    assert query.terms.phrases == (("dri", "dock"),)
    assert words('"dry dock"-keel') == ["dri", "dock", "keel"]


@pytest.mark.parametrize("text", ['""', '-""', 'tag:""', '"!?"', '-"!?"', "-!?", '" "'])
def test_empty_quotes_ask_for_nothing(text: str) -> None:
    query = parse(f"keel {text}")
    assert words(f"keel {text}") == ["keel"]
    assert query.terms.phrases == query.terms.excluded == ()
    assert not query.filter


@pytest.mark.parametrize("text", ["", " \t\n ", "!?… — 🚀", "-", '"', "\0", "()[]{}"])
def test_a_query_without_words_has_no_terms(text: str) -> None:
    query = parse(text)
    assert not query.terms
    assert query.raw == text


def test_a_query_of_stopwords_keeps_them() -> None:
    assert words("to be or not to be") == ["to", "be", "or", "not"]
    assert words("the keel") == ["keel"]


def test_a_nul_byte_is_a_space() -> None:
    query = parse("keel\0bolt \0")
    assert words("keel\0bolt \0") == ["keel", "bolt"]
    assert "\0" not in query.text
    assert parse("tag:ri\0sk").filter == Filter(tags_all="ri")


def test_a_repeated_word_counts_once() -> None:
    assert words("keel Keel keels bolt") == ["keel", "bolt"]


def test_a_compound_stays_one_word_with_parts() -> None:
    assert parse("getUserName").terms.words == (("getusernam", "get", "user", "name"),)


def test_unspaced_text_is_looked_for_pair_by_pair() -> None:
    assert words("京都タワー") == ["京都", "都タ", "タワ", "ワー"]
    assert parse('"京都駅"').terms.phrases == (("京都", "都駅"),)


# ---------------------------------------------------------------- sizes


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["keel ", "k", '"', "- ", "-x ", "tag:", 'tag:"', "a:", "京", " "])
def test_a_pasted_document_is_cut(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    query = parse(text)
    assert query.raw == text
    assert len(query.text) <= LONGEST_QUERY
    assert len(query.terms.words) <= MOST_WORDS


def test_a_long_query_keeps_its_first_words() -> None:
    text = " ".join(f"word{i}x" for i in range(20_000))
    assert words(text) == [f"word{i}x" for i in range(MOST_WORDS)]


def test_depth_is_at_least_the_limit() -> None:
    assert parse("keel", limit=500, depth=100).depth == 500
    assert parse("keel", limit=5, depth=100).depth == 100


def test_what_is_not_in_the_text_comes_through() -> None:
    query = parse("keel", mode="keyword", limit=3, now=7.0)
    assert (query.mode, query.limit, query.now) == ("keyword", 3, 7.0)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize("text", [None, 5, b"keel", ["keel"], {"q": "keel"}])
def test_a_query_must_be_text(text: Any) -> None:
    with pytest.raises(InputError, match=f"a query is text, not {type(text).__name__}"):
        parse(text)


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "10", None, float("nan")])
def test_a_limit_must_be_a_whole_number(limit: Any) -> None:
    with pytest.raises(InputError, match="limit must be a whole number from 1 on") as caught:
        parse("keel", limit=limit)
    assert repr(limit) in str(caught.value)


@pytest.mark.parametrize("field", ["after", "before"])
@pytest.mark.parametrize(
    "date",
    ["yesterday", "2026-13-01", "2026-02-30", "01/02/2026", "5", "2026-1-1", "0000-01-01"],
)
def test_a_bad_date_names_itself_and_the_right_form(field: str, date: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"keel {field}:{date}")
    message = str(caught.value)
    assert field in message
    assert date in message
    assert "2026-03-14" in message


@pytest.mark.parametrize("date", ["0001-01-01", "9999-12-31", "1969-12-31", "0001-01-01T00:00"])
def test_a_date_at_the_edge_of_the_calendar_is_a_date_or_an_input_error(date: str) -> None:
    # What the platform cannot turn into seconds is the caller's to correct, not a crash.
    try:
        query = parse(f"keel after:{date}")
    except InputError as error:
        assert date in str(error)
    else:
        assert query.filter.after is not None


def test_an_empty_time_range_says_so() -> None:
    with pytest.raises(InputError, match="`after` must be earlier than `before`"):
        parse("keel after:2026-07-01 before:2026-01-01")


def test_an_empty_time_range_across_text_and_filter_says_so() -> None:
    with pytest.raises(InputError, match="`after` must be earlier than `before`"):
        parse("keel after:2026-07-01", filter=Filter(before="2026-01-01"))


# ---------------------------------------------------------------- beside a filter


def test_the_text_narrows_the_given_filter() -> None:
    query = parse("keel tag:risk", filter=Filter(collection="notes", tags_all="crane"))
    assert query.filter.collection == ("notes",)
    assert set(query.filter.tags_all) == {"crane", "risk"}


def test_the_text_cannot_leave_the_given_collection() -> None:
    with pytest.raises(InputError, match="no record can match: collection"):
        parse("keel collection:private", filter=Filter(collection="notes"))
    narrowed = parse("keel collection:b", filter=Filter(collection=["a", "b"]))
    assert narrowed.filter.collection == ("b",)


def test_the_text_cannot_widen_the_given_times() -> None:
    given = Filter(after="2026-02-01", before="2026-03-01")
    assert parse("keel after:2020-01-01 before:2030-01-01", filter=given).filter == given


def test_the_given_filter_is_untouched() -> None:
    given = Filter(tags_all="crane")
    parse("keel tag:risk", filter=given)
    assert given == Filter(tags_all="crane")


# ---------------------------------------------------------------- any text at all

pieces = st.sampled_from(
    [
        *("tag:", "path:", "after:", "before:", "type:", "collection:", '"', "-", " ", "\0", "\n"),
        *("2026-01-01", "0001-01-01", "9999-12-31", "keel", "京都", "#", "*", "[", ":", "\\", "'"),
    ]
)


@unhurried
@given(st.text() | st.lists(pieces, max_size=20).map("".join))
@example("after:0001-01-01")
@example("before:0001-01-01T00:00:00+14:00")
@example("after:9999-12-31T23:59:59-14:00")
@example("after:2026-01-01 after:2025-01-01 before:2024-01-01")
def test_no_text_is_too_strange(text: str) -> None:
    try:
        query = parse(text)
    except InputError:
        assert "after:" in text.lower() or "before:" in text.lower()
        return
    assert query.raw == text
    assert "\0" not in query.text
    assert len(query.terms.words) <= MOST_WORDS
    groups = (*query.terms.words, *query.terms.phrases, *query.terms.excluded)
    assert all(group and all(group) for group in groups)
    assert query == parse(text)


@unhurried
@given(st.text())
def test_the_words_left_over_parse_to_themselves(text: str) -> None:
    # Nothing that was syntax leaves a trace in the words given to the embedder.
    try:
        query = parse(text)
    except InputError:
        return
    if '"' not in text and "-" not in text and ":" not in text:
        assert parse(query.text).terms == query.terms
        assert query.text.split() == text.replace("\0", " ")[:LONGEST_QUERY].split()


def test_without_syntax_everything_is_words() -> None:
    typed = 'Who said "never again" -loudly- in tag:risk?'
    plain = parse(typed, syntax=False)
    assert plain.text == typed
    assert not plain.terms.phrases and not plain.terms.excluded and not plain.filter
    assert {"never", "risk"} <= {token for group in plain.terms.words for token in group}


def test_bytes_that_are_no_text_become_something_that_can_be_written() -> None:
    query = parse('keel \udcff "a \ud800b" path:\udc80x')
    for text in (query.raw, query.text, *query.filter.path):
        text.encode("utf-8")
    assert "keel" in query.text
