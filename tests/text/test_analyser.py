from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.text.analyser import LONGEST_WORD, Matcher, is_identifier, joined, tokens, unspaced, words

unhurried = settings(deadline=None)


def contains_run(whole: Sequence[str], run: Sequence[str]) -> bool:
    """Whether `run` stands in `whole` without a gap: what a phrase query asks."""
    width = len(run)
    return any(list(whole[i : i + width]) == list(run) for i in range(len(whole) - width + 1))


def finds(query: str, text: str) -> bool:
    """As a keyword leg sees it: every word is there as its whole or as all of its parts."""
    there = set(tokens(text))
    groups = words(query)
    return bool(groups) and all(
        whole in there or (bool(parts) and there.issuperset(parts)) for whole, *parts in groups
    )


# ---------------------------------------------------------------- what the module promises


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The café's getUserName()", "the cafe getusernam get user name"),
        ("since v1.2.3", "sinc v1.2.3 v1 2 3 1.2.3"),
        ("京都タワー", "京都 都タ タワ ワー"),
        ("京", "京"),
        ("snake_case", "snake_case snake case"),
        ("protocol-137", "protocol-137 protocol 137"),
        ("HTTPServer", "httpserver http server"),
        ("python3", "python3 python 3"),
        ("C++ and C#", "c++ c and c# c"),
        ("node.js", "node.js node js"),
        ("__init__", "init"),
        ("2026-03-14", "2026-03-14 2026 03 14"),
        ("3.14 of 10,000", "3.14 3 14 of 10 000"),
        ("", ""),
        ("… — !? 🚀", ""),
    ],
)
def test_the_documented_examples_hold(text: str, expected: str) -> None:
    assert tokens(text) == expected.split()


# ---------------------------------------------------------------- identifiers


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("getUserName", "getUserName getusername GETUSERNAME get user name User Name users"),
        ("snake_case", "snake_case SNAKE_CASE Snake_Case snake case cases"),
        ("v1.2.3", "v1.2.3 V1.2.3 1.2.3 v1 2 3"),
        ("protocol-137", "protocol-137 Protocol-137 protocol protocols 137"),
        ("HTTPServer", "HTTPServer httpserver HTTP http Server server servers"),
        ("python3", "python3 Python3 python Python 3"),
        ("C++", "C++ c++ C c"),
        ("C#", "C# c# C c"),
        ("F#", "F# f# F"),
        ("node.js", "node.js Node.js node js"),
        ("test_python3", "test_python3 test python3"),
        ("getHTTPResponse2", "getHTTPResponse2 gethttpresponse2 get http response 2"),
        ("O'Brien", "O'Brien O’Brien OBrien brien"),
    ],
)
def test_an_identifier_is_found_whole_and_by_any_part(text: str, queries: str) -> None:
    surrounded = f"see ({text}), please"
    missed = [query for query in queries.split() if not finds(query, surrounded)]
    assert missed == []


STYLES = ["_", "__", "-", ".", "·", "camel"]
lower_words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=9)


@unhurried
@given(st.lists(lower_words, min_size=2, max_size=4), st.sampled_from(STYLES))
def test_any_made_up_identifier_is_found_whole_and_by_any_part(
    parts: list[str], style: str
) -> None:
    if style == "camel":
        text = parts[0] + "".join(part.capitalize() for part in parts[1:])
    else:
        text = style.join(parts)
    for query in (text, text.lower(), *parts):
        assert finds(query, text), query


@unhurried
@given(st.text("BCDFGHJKLMNP", min_size=2, max_size=5), lower_words)
def test_an_acronym_before_a_word_is_a_part_of_its_own(acronym: str, word: str) -> None:
    text = acronym + word.capitalize()
    assert finds(acronym.lower(), text)
    assert finds(word, text)


def test_words_keep_a_compound_together() -> None:
    assert words("rename getUserName now") == [
        ("renam",),
        ("getusernam", "get", "user", "name"),
        ("now",),
    ]


def test_c_plus_plus_is_not_just_the_letter() -> None:
    assert "c++" not in tokens("vitamin C")
    assert "c#" not in tokens("C #1")
    assert words("C++") == [("c++", "c")]


# ---------------------------------------------------------------- case, accents, inflection


@pytest.mark.parametrize(
    "spellings",
    [
        ["Zoë", "zoe", "ZOË", "Zoe\u0308"],
        ["Łukasz", "lukasz", "ŁUKASZ"],
        ["café", "cafe", "CAFÉ", "cafe\u0301", "café's", "café’s"],
        ["ÉCOLE", "école", "E\u0301COLE", "ecole"],
        ["Ærø", "aero", "ÆRØ"],
        ["Straße", "STRASSE", "strasse"],
        ["İstanbul", "istanbul", "ISTANBUL"],
        ["ﬁne", "fine"],
        ["ＡＢＣ", "abc"],
        ["𝐁𝐨𝐥𝐝", "bold"],
        ["don't", "don’t", "DON'T"],
        ["dogs", "dog's", "dogs'", "dog"],
        ["running", "runs", "run"],
        ["книга", "книги", "книгу", "книгой", "КНИГАМИ"],
        ["ёлка", "елка", "Ёлки", "е\u0308лку"],
        ["майка", "МАЙКА", "маи\u0306ка"],
        ["за\u0301мок", "замок"],
        ["كتاب", "الكتاب", "كتابي", "كِتَابٌ", "كتـــاب"],
        ["مدرسة", "المدرسة", "مدرسه"],
        ["سيارة", "السيارة"],
        ["Ὀδυσσεύς", "οδυσσευς", "ΟΔΥΣΣΕΥΣ"],
        ["بچه\u200cها", "بچهها"],
    ],
)
def test_spellings_of_one_word_share_one_token(spellings: list[str]) -> None:
    assert {tuple(tokens(spelling)) for spelling in spellings} == {tuple(tokens(spellings[0]))}
    assert len(tokens(spellings[0])) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("йога", "иога"), ("2026", "2025"), ("Kestrel 28", "Kestrel 32"), ("C++", "C#"), ("か", "が")],
)
def test_what_differs_for_a_reader_keeps_different_tokens(one: str, other: str) -> None:
    assert tokens(one) != tokens(other)


ACCENTED = st.characters(categories=["L", "Mn", "Nd", "Zs"], max_codepoint=0x052F) | st.characters(
    categories=["L"], min_codepoint=0x1E00, max_codepoint=0x1FFF
)


@unhurried
@given(st.text(ACCENTED) | st.text(st.sampled_from("한국어가각ガバパヴが日本أآإؤئé")))
@example("AaÀ0")  # the accent must not hide or make a camel's hump
def test_composed_and_decomposed_text_give_the_same_tokens(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    assert tokens(composed) == tokens(unicodedata.normalize("NFD", text))


@unhurried
@given(
    st.text("abcdefghijklmnopqrstuvwxyzàâäåæçéèêëîïñóôöøùúûüýÿßłœžščđабвгдежзийклмя", min_size=1)
)
def test_the_case_of_a_plain_word_does_not_matter(word: str) -> None:
    assert tokens(word) == tokens(word.upper()) == tokens(word.capitalize())


# ---------------------------------------------------------------- scripts without spaces

RANGES = {
    "han": (0x4E00, 0x9FFF),
    "han extension b": (0x20000, 0x2A6DF),
    "hiragana": (0x3041, 0x3096),
    "katakana": (0x30A1, 0x30FA),
    "hangul": (0xAC00, 0xD7A3),
    "thai": (0x0E01, 0x0E3A),
    "thai signs": (0x0E40, 0x0E4E),
    "lao": (0x0E81, 0x0EC4),
    "burmese": (0x1000, 0x1049),
    "khmer": (0x1780, 0x17D3),
}
spaceless = st.one_of(
    *(st.characters(min_codepoint=low, max_codepoint=high) for low, high in RANGES.values())
).filter(lambda c: unicodedata.category(c)[0] in "LM")


@st.composite
def runs_with_a_piece(draw: st.DrawFn) -> tuple[str, str]:
    # Normalised, because a piece of decomposed text may begin in the middle of a letter.
    run = unicodedata.normalize("NFKC", draw(st.text(spaceless, min_size=2, max_size=20)))
    start = draw(st.integers(0, len(run) - 2))
    end = draw(st.integers(start + 2, len(run)))
    return run, run[start:end]


@unhurried
@given(runs_with_a_piece())
def test_any_piece_of_an_unspaced_run_is_a_phrase_of_it(drawn: tuple[str, str]) -> None:
    run, piece = drawn
    assert contains_run(tokens(run), tokens(piece))
    assert [group[0] for group in words(piece)] == tokens(piece)


neighbours = st.lists(
    st.sampled_from(["", " ", "。", "、", "abc", "iPhone", "2026", "v1.2", "-", "_", "C++", "é"]),
    max_size=4,
).map("".join)


@unhurried
@given(neighbours, runs_with_a_piece(), neighbours)
def test_a_piece_is_found_wherever_its_run_stands(
    before: str, drawn: tuple[str, str], after: str
) -> None:
    run, piece = drawn
    assert contains_run(tokens(before + run + after), tokens(piece))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("ﾊﾞｽ停", "バス"),  # half-width kana
        ("カ\u3099ス会社", "ガス"),  # decomposed, as macOS writes file names
        ("ดื่มน้ำเย็น", "น้ำ"),  # sara am is two characters when normalised
        ("\u1112\u1161\u11ab국어", "한국"),  # conjoining jamo
        ("㐂寿司", "㐂寿"),
        ("時々雨", "時々"),
        ("iPhone用ケース", "用ケ"),
    ],
)
def test_unspaced_text_is_found_in_either_form(text: str, query: str) -> None:
    assert contains_run(tokens(text), tokens(query))


def test_unspaced_tells_scripts_apart() -> None:
    assert [c for c in "京かカ한ไaéж1" if unspaced(c)] == list("京かカ한ไ")


# ---------------------------------------------------------------- any text at all

anything = st.text() | st.text(st.characters(categories=["L", "M", "N", "Pc", "Po", "Lm"]))


@unhurried
@given(anything)
@example("か゛き")  # U+309B is a space and a mark when normalised
@example("a ـ b")  # a stretching stroke with nothing to stretch
@example("ͺ")  # U+037A: a space and an iota
@example("\ufdfa")  # one character, four words
@example("'s ’ _ . - ·")
@example("\u0301\u200d\u0640")
@example("x" * 5000 + "\u0980" * 5000)
def test_tokens_are_never_empty_spaced_or_overlong(text: str) -> None:
    found = tokens(text)
    for token in found:
        assert token
        assert token.split() == [token]
        assert len(token) <= LONGEST_WORD + 8  # a stemmer may add a letter or two
    assert joined(text) == " ".join(found)


@unhurried
@given(anything)
def test_words_are_the_tokens_in_groups(text: str) -> None:
    groups = words(text, keep_stopwords=True)
    assert [token for group in groups for token in group] == tokens(text)
    assert all(groups)


@unhurried
@given(anything, anything)
@example("the café's", "getUserName() v1.2.3")
@example("京", "都")
@example("C", "#x")
def test_a_space_parts_texts_cleanly(one: str, other: str) -> None:
    # So a word-aligned slice is a run of the text's tokens, and no text depends on the one before.
    assert tokens(f"{one} {other}") == tokens(one) + tokens(other)


PROSE = [
    *("the", "cat's", "getUserName()", "v1.2.3,", "protocol-137:", "state-of-the-art", "(C++)"),
    *("京都タワー", "книги", "كتاب", "naïve", "e.g.", "10,000", "—"),
]
prose = st.lists(st.sampled_from(PROSE), min_size=1, max_size=12)


@unhurried
@given(prose, st.data())
def test_a_word_aligned_slice_is_a_phrase_of_the_text(text: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert contains_run(tokens(" ".join(text)), tokens(" ".join(text[start:end])))


def test_the_spaced_form_of_a_hyphenated_word_is_a_phrase_of_it() -> None:
    assert contains_run(tokens("a state-of-the-art crane"), tokens("state of the art"))


def test_a_lone_surrogate_is_not_a_problem() -> None:
    assert tokens("before \ud800 after") == ["befor", "after"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["a", "\u0640", "\u0995", "a\u0301", "_", "a_", "a.", "京", "'"])
def test_a_huge_word_is_no_trap(unit: str) -> None:
    # Nested repeats in the word pattern would need longer than anybody waits.
    assert all(len(token) <= LONGEST_WORD for token in tokens(unit * 50_000))


def test_a_long_word_is_cut_the_same_at_both_ends_of_the_pipeline() -> None:
    digest = "f00d" * 40
    assert tokens(digest) == [digest[:LONGEST_WORD]]
    assert finds(digest, f"sha: {digest}.")


# ---------------------------------------------------------------- stopwords


def test_a_query_drops_stopwords() -> None:
    assert words("what is the keel of a boat") == [("keel",), ("boat",)]
    assert words("The Keel") == [("keel",)]


@pytest.mark.parametrize("query", ["the", "to be or not to be", "The Who", "it"])
def test_a_query_of_stopwords_alone_keeps_them(query: str) -> None:
    assert words(query) == [(token,) for token in tokens(query)]
    assert words(query)


def test_text_keeps_its_stopwords() -> None:
    assert tokens("the keel of the boat") == ["the", "keel", "of", "the", "boat"]
    assert words("the keel", keep_stopwords=True) == [("the",), ("keel",)]


# ---------------------------------------------------------------- Matcher


def test_a_matcher_gives_place_and_token_of_each_match() -> None:
    find = Matcher({"keel", "bolt"})
    assert find("Keels, keel-bolts: BOLTED!") == [
        (0, 5, "keel"),
        (7, 17, "keel"),
        (19, 25, "bolt"),
    ]
    assert find("nothing here") == []
    assert find("") == []


VOCABULARY = ["keel", "Keels", "keel-bolt", "bolted", "getUserName", "v1.2.3", "the", "café", "C++"]
vocabulary = st.sampled_from(VOCABULARY)


@unhurried
@given(st.lists(vocabulary, max_size=12), st.sets(vocabulary), st.data())
def test_a_matcher_finds_exactly_the_words_that_share_a_token(
    text: list[str], query: set[str], data: st.DataObject
) -> None:
    wanted = {token for word in query for token in tokens(word)}
    expected: list[tuple[int, int]] = []
    line = ""
    for word in text:
        line += data.draw(st.sampled_from([" ", "\n", ", ", " ("]))
        if wanted & set(tokens(word)):
            expected.append((len(line), len(line) + len(word)))
        line += word
    found = Matcher(wanted)(line)
    assert [(start, end) for start, end, _ in found] == expected
    assert all(token in wanted for _, _, token in found)


def places(found: list[tuple[int, int, str]]) -> set[int]:
    return {place for start, end, _ in found for place in range(start, end)}


def occurrences(text: str, piece: str) -> set[int]:
    starts = (i for i in range(len(text)) if text.startswith(piece, i))
    return {place for start in starts for place in range(start, start + len(piece))}


@unhurried
@given(runs_with_a_piece(), neighbours)
def test_a_matcher_covers_an_unspaced_query(drawn: tuple[str, str], before: str) -> None:
    run, piece = drawn
    text = before + run
    found = Matcher(set(tokens(piece)))(text)
    assert occurrences(text, piece) <= places(found)
    assert found == sorted(found)
    assert all(0 <= start < end <= len(text) for start, end, _ in found)


@unhurried
@given(st.text("東京都市計画", min_size=1, max_size=8), st.sampled_from("東京都市計画"))
def test_one_character_of_an_unspaced_script_matches_just_itself(text: str, query: str) -> None:
    assert places(Matcher({query})(text)) == occurrences(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("ﾊﾞｽ停まで", "バス"),
        ("カ\u3099ス会社", "ガス"),
        ("ดื่มน้ำเย็น", "น้ำ"),
        ("\u1112\u1161\u11ab국어", "한국"),
    ],
)
def test_a_matcher_sees_through_the_form_of_the_text(text: str, query: str) -> None:
    # Whatever form the text is in: what is marked reads as the query.
    marked = "".join(text[place] for place in sorted(places(Matcher(set(tokens(query)))(text))))
    normal = unicodedata.normalize("NFKC", marked)
    assert normal == unicodedata.normalize("NFKC", query)


@unhurried
@given(anything, anything)
def test_every_match_lies_within_the_text(text: str, query: str) -> None:
    wanted = set(tokens(query))
    found = Matcher(wanted)(f"{text} {query}")
    for start, end, _ in found:
        assert 0 <= start < end <= len(text) + 1 + len(query)
    assert [start for start, _, _ in found] == sorted(start for start, _, _ in found)
    assert bool(found) == bool(wanted)


def test_a_matcher_remembers_words_not_places() -> None:
    find = Matcher({"keel"})
    assert find("keel") == [(0, 4, "keel")]
    assert find("a keel") == [(2, 6, "keel")]


ENGLISH = """
hope hoping hopped fly flies flying dying die died lies skies sky using used uses sensible keel
sensibility organisation organize relational relate ugly early only news happily happiness
getUserName snake_case v1.2.3 protocol-137 C++ c# python3 it's up-to-date a I x1 ROT13
vying vie vies tying ties O'Brien obrien isn't
"""
english = st.sampled_from(ENGLISH.split())


@given(
    st.lists(english, min_size=1, max_size=4),
    st.lists(english | st.sampled_from([".", ",", "-", "_", "'", "+", "#", " ", "(", "\n"])),
)
def test_looking_only_where_a_match_may_be_finds_the_same(
    asked: list[str], text: list[str]
) -> None:
    find = Matcher({token for word in asked for token in tokens(word)})
    for joint in (" ", "", "-", "_"):
        assert find._among_ascii(joint.join(text)) == find._among_all(joint.join(text))


@unhurried
@given(st.text(st.characters(max_codepoint=0x27BF, exclude_categories=["Cs"])))
def test_a_text_has_the_same_words_beside_another_script(text: str) -> None:
    assert tokens(f"{text} 京都") == [*tokens(text), "京都"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((t, True) for t in ("TX-4471-B", "ERR_404", "getUserName", "os.path.join", "404")),
        *((t, True) for t in ("nf_conntrack_max  A4001ib8", "HTTPServer")),
        *((t, False) for t in ("", " ", "keel", "state-of-the-art", "getUserName fails")),
        *((t, False) for t in ("k8s.io/node", "2015年", "U.S.", "Ana's", "NASA", "__")),
    ],
)
def test_identifiers_are_told_from_words(text: str, is_one: bool) -> None:
    assert is_identifier(text) is is_one
