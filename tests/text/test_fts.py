"""User text for FTS5."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew import fts_escape
from clew.errors import InputError
from clew.text.analyser import pairs, quoted


def test_each_word_is_quoted_and_joined() -> None:
    text = "deploy production server"
    assert fts_escape(text) == '"deploy" AND "production" AND "server"'
    assert fts_escape(text, op="OR") == '"deploy" OR "production" OR "server"'


def test_signs_are_part_of_words_or_left_out() -> None:
    assert fts_escape('say "hi" -- * (NEAR)') == '"say" AND """hi""" AND "(NEAR)"'
    assert fts_escape(" ?! ") == ""


def test_words_are_joined_by_and_or_or_only() -> None:
    with pytest.raises(InputError, match="AND or OR"):
        fts_escape("a b", op="NOT")


@given(st.text(), st.sampled_from(["AND", "OR"]))
def test_fts5_understands_whatever_comes_out(text: str, op: str) -> None:
    expression = fts_escape(text, op=op).encode("utf-8", "replace").decode()
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE t USING fts5 (x)")
        if expression:
            db.execute("SELECT * FROM t WHERE t MATCH ?", (expression,)).fetchall()
        db.execute("SELECT * FROM t WHERE t MATCH ?", (quoted("a" + expression),)).fetchall()


def test_pairs_are_of_unspaced_scripts_only_and_begin_with_every_character() -> None:
    assert pairs("A keel, naïve, Москва") == ""
    assert pairs("the 京都タワー of 京") == "京都 都タ タワ ワー ー 京"
