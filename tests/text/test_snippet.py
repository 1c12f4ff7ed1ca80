from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.text.analyser import Matcher, tokens, words
from clew.text.snippet import Snippet, cells, matcher, snippet
from clew.types import Terms

unhurried = settings(deadline=None)
FILLER = " ".join(f"filler{'abcdefghij'[i % 10]}{i}" for i in range(200))


def seeking(query: str) -> Matcher:
    return matcher(Terms(words=tuple(words(query))))


def marked(shown: Snippet) -> list[str]:
    return [shown.text[start:end] for start, end in shown.highlights]


def core(shown: Snippet) -> str:
    return shown.text.strip("…")


def test_highlights_lie_exactly_on_the_matching_words() -> None:
    text = "Keel-bolts, torqued: the keel held (no bolt was loose)."
    shown = snippet(text, seeking("keel bolts"))
    assert shown.text == text
    assert marked(shown) == ["Keel-bolts", "keel", "bolt"]
    assert shown.line == 0


def test_phrases_are_highlighted_too() -> None:
    shown = snippet("the dry dock", matcher(Terms(phrases=(("dri", "dock"),))))
    assert marked(shown) == ["dry", "dock"]


def test_excluded_words_are_not_highlighted() -> None:
    find = matcher(Terms(words=(("keel",),), excluded=(("bolt",),)))
    assert marked(snippet("keel and bolt", find)) == ["keel"]


def test_the_densest_spot_is_shown() -> None:
    text = f"keel {FILLER} a keel with bolts under torque {FILLER} bolts {FILLER}"
    shown = snippet(text, seeking("keel bolts torque"))
    assert marked(shown) == ["keel", "bolts", "torque"]


def test_different_words_together_beat_one_word_repeated() -> None:
    text = f"keel keel keel keel {FILLER} keel and bolts {FILLER}"
    assert marked(snippet(text, seeking("keel bolts"))) == ["keel", "bolts"]


def test_of_equal_spots_the_first_is_shown() -> None:
    text = f"{FILLER} keel one {FILLER} keel two {FILLER}"
    assert "keel one" in snippet(text, seeking("keel")).text


def test_words_on_both_sides_of_a_match_are_shown() -> None:
    text = f"{FILLER} just before keel just after {FILLER}"
    assert "just before keel just after" in snippet(text, seeking("keel")).text


def test_ellipses_tell_where_text_was_left_out() -> None:
    def ends(text: str) -> tuple[bool, bool]:
        shown = snippet(text, seeking("keel")).text
        return shown.startswith("…"), shown.endswith("…")

    assert ends("a keel") == (False, False)
    assert ends(f"keel {FILLER}") == (False, True)
    assert ends(f"{FILLER} keel {FILLER}") == (True, True)
    assert ends(f"{FILLER} keel") == (True, False)
    assert ends("\n\n  keel  \n") == (False, False)


def test_a_snippet_is_cut_between_words() -> None:
    text = f"{FILLER} keel {FILLER}"
    assert set(core(snippet(text, seeking("keel"))).split()) <= set(text.split())


def test_the_line_tells_how_far_down_the_snippet_begins() -> None:
    lines = [f"line{i} of the passage, which is not short at all, by no means" for i in range(40)]
    lines[25] = "the keel stands here"
    shown = snippet("\n".join(lines), seeking("keel"), width=60)
    first = core(shown).split("keel")[0].strip()
    assert first in f"{lines[shown.line]} {' '.join(lines[shown.line + 1 :])}"
    assert 23 <= shown.line <= 25


def test_blank_lines_at_the_top_count() -> None:
    assert snippet("\n\n\nkeel", seeking("keel")) == Snippet("keel", ((0, 4),), 3)


def test_without_a_match_the_beginning_is_shown() -> None:
    shown = snippet(f"  It begins here. {FILLER}", seeking("keel"))
    assert shown.text.startswith("It begins here.")
    assert shown.highlights == ()
    assert shown.line == 0


@pytest.mark.parametrize("text", ["", " ", "\n\n", "…", "!?"])
def test_a_text_without_words_gives_no_highlights(text: str) -> None:
    shown = snippet(text, seeking("keel"))
    assert core(shown).strip() in text
    assert shown.highlights == ()


def test_unspaced_text_is_highlighted_as_far_as_it_matches() -> None:
    # Pairs of characters overlap; to a reader they are one mark.
    text = "今年の夏は東京タワーに登り、翌日は京都タワーを見た。"
    shown = snippet(text, seeking("京都タワー"))
    assert "京都タワー" in marked(shown)
    assert marked(shown) == ["タワー", "京都タワー"]


def test_a_match_deep_in_unspaced_text_is_shown() -> None:
    text = "あいうえお" * 200 + "京都駅" + "かきくけこ" * 200
    shown = snippet(text, seeking("京都駅"))
    assert marked(shown) == ["京都駅"]
    assert shown.text.startswith("…") and shown.text.endswith("…")
    assert cells(shown.text) <= 242


@pytest.mark.parametrize("width", range(40, 50, 2))
def test_a_match_cut_in_two_is_not_highlighted(width: int) -> None:
    shown = snippet("京都" * 100, seeking("京都"), width=width)
    assert "".join(marked(shown)) == "京都" * (width // 4)


def test_one_unspaced_character_is_highlighted_alone() -> None:
    assert marked(snippet("東京都の計画", seeking("都"))) == ["都"]
    assert marked(snippet("大阪府と東京都", seeking("都"))) == ["都"]


def test_a_very_long_word_does_not_make_a_very_long_snippet() -> None:
    blob = "QUJD" * 5000
    shown = snippet(f"{blob} keel {blob}", seeking("keel"))
    assert len(shown.text) <= 242
    assert marked(shown) == ["keel"]
    assert len(snippet(blob, seeking("keel")).text) <= 242
    assert len(snippet(blob, seeking(blob)).text) <= 242


# ---------------------------------------------------------------- as a person would read it

TABLE = """Fuses blow where the wire is too thin.

| current | 3 m     | `5 m`   |
|--------:|---------|---------|
| 5 A | 1.5 mm² | **2.5 mm²** |
| 水 A | 4 mm² | [6 mm²](wire.md) |
| 20 A | 10 mm² | 16 mm² |
"""


def test_a_table_keeps_its_rows_one_below_the_other() -> None:
    shown = snippet(TABLE, seeking("thin wire current"), kind="markdown")
    assert shown.text == (
        "Fuses blow where the wire is too thin.\n"
        "current | 3 m     | 5 m\n"
        "5 A     | 1.5 mm² | 2.5 mm²\n"
        "水 A    | 4 mm²   | 6 mm²\n"
        "20 A    | 10 mm²  | 16 mm²"
    )
    assert marked(shown) == ["wire", "thin", "current"]


CODE = """    def torque(self, bolt):
\tif not bolt.greased:
\t    raise Dry(bolt)

        return TABLE[bolt.size]  # newton metres

    def loosen(self):
        ...
"""


def test_code_keeps_its_lines_and_what_of_their_indentation_tells_something() -> None:
    shown = snippet(CODE, seeking("greased bolt"), kind="code")
    assert shown.text == (
        "def torque(self, bolt):\nif not bolt.greased:\n    raise Dry(bolt)\n"
        "    return TABLE[bolt.size]  # newton metres\ndef loosen(self):"
    )
    assert shown.line == 0
    fenced = f"Before.\n\n```py\n{CODE}```\n\nAfter *it*.\n"
    shown = snippet(fenced, seeking("newton metres"), kind="markdown")
    assert "    return TABLE[bolt.size]  # newton metres\n" in shown.text
    assert "```" not in shown.text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("A **bold** and *slanted*, __so__ and _so_ keel", "A bold and slanted, so and so keel"),
        ('See [the *keel*](a_(b).md "title") and ![a picture][1]', "See the keel and a picture"),
        ("[[2025-09-03-keel|September]] and [[keel bolts]]", "September and keel bolts"),
        ("`a*b*c` and ``x`y`` \\*keel\\*", "a*b*c and x`y *keel*"),
        ("2 * 3 * 4 keel_bolt_size 5*6*7", "2 * 3 * 4 keel_bolt_size 5*6*7"),
        (
            "A line of prose as wide as the page, and in it [a link\nover two](http://a.b) to keel",
            "A line of prose as wide as the page, and in it a link over two to keel",
        ),
        ("> [!note] Mind\n> the keel", "Mind\nthe keel"),
        ("## Not the keel ## {#id}", "Not the keel"),
        ("The keel<br/>of <kbd>ash</kbd>, 1 < 2", "The keel of ash, 1 < 2"),
        ("- keel\n  - bolts\n1. nuts", "- keel\n  - bolts\n1. nuts"),
    ],
)
def test_marks_of_markdown_are_left_out(source: str, words: str) -> None:
    assert snippet(source, seeking("keel"), kind="markdown").text == words
    assert (
        snippet("a **keel**", seeking("keel")).text == "a **keel**"
    )  # of plain text they are part


def test_lines_of_a_paragraph_are_joined_and_short_ones_are_not() -> None:
    long = "a line of prose that goes on to the right margin of the page\n"
    shown = snippet(f"{long}{long}keel\n\nashore\nafloat\n", seeking("keel"))
    assert shown.text == f"{long}{long}keel".replace("\n", " ") + "\nashore\nafloat"
    assert snippet("Keel Ltd\n1 Dock Rd\nCork", seeking("keel")).text == "Keel Ltd\n1 Dock Rd\nCork"


def test_a_heading_that_is_known_is_not_repeated() -> None:
    text = "# Keel bolts\n\nTorque\n------\n\nThe keel bolts.\n\n### Nuts\n\nSix.\n\n### Last\n"
    shown = snippet(text, seeking("keel bolts"), kind="markdown", known=("Keel bolts", "Torque"))
    assert (shown.text, shown.line) == ("The keel bolts.\nNuts\nSix.", 5)
    assert marked(shown) == ["keel", "bolts"]
    assert snippet("## Keel", seeking("keel"), kind="markdown", known=("Keel",)).text == "Keel"


def test_a_snippet_has_five_lines_at_most_and_the_first_is_told() -> None:
    text = "\n\n".join(f"- item {i}" for i in range(40)).replace("item 20", "keel")
    shown = snippet(text, seeking("keel"), kind="markdown")
    assert shown.text == "- keel\n- item 21\n- item 22\n- item 23\n- item 24"
    assert shown.line == 40
    assert snippet(text, seeking("39"), kind="markdown").text.split("\n")[-1] == "- item 39"


def test_columns_of_a_terminal() -> None:
    assert [cells(text) for text in ("keel", "京都", "é", "e\u0301", "ไม้", "")] == [
        4,
        4,
        1,
        1,
        2,
        0,
    ]


unit = st.sampled_from(
    (
        *("keel", "bolts", "filler", "京都タワー", "getUserName", "é", "x" * 300, "—"),
        *("| a | b |", "```", "# ", "**b**", "[[a|b]]", "    code", "> ", "- "),
    )
)
gap = st.sampled_from([" ", "\n", "\n\n", ", ", ""])
texts = st.lists(st.tuples(unit, gap), max_size=60).map(lambda pairs: "".join(map("".join, pairs)))
queries = st.sampled_from(["keel", "keel bolts", "京都", "都", "user name", "nothing", "filler é"])
kinds = st.sampled_from(["markdown", "text", "code", "html"])


@unhurried
@given(texts | st.text(), queries, st.integers(20, 400), kinds)
@example("\u3000京", "京", 20, "text")
@example("東京都", "都", 20, "text")
def test_any_snippet_is_of_few_lines_with_true_highlights(
    text: str, query: str, width: int, kind: str
) -> None:
    shown = snippet(text, seeking(query), kind=kind, width=width)
    assert shown.text.count("\n") < 5
    assert len(shown.text.replace(" ", "")) <= width + 2 * len("…")
    assert 0 <= shown.line <= text.count("\n")
    wanted = set(tokens(query))
    after = 0
    for start, end in shown.highlights:
        assert after <= start < end <= len(shown.text)
        after = end
        words_marked = shown.text[start:end]
        assert wanted & {*tokens(words_marked), *words_marked}


@unhurried
@given(st.integers(0, 150), st.integers(1, 7), kinds)
def test_a_match_is_shown_wherever_it_stands(place: int, per_line: int, kind: str) -> None:
    pieces = [f"filler{i}" for i in range(150)]
    pieces.insert(place, "keel")
    lines = [" ".join(pieces[i : i + per_line]) for i in range(0, len(pieces), per_line)]
    shown = snippet("\n".join(lines), seeking("keel"), kind=kind, width=120)
    assert marked(shown) == ["keel"]
    first = core(shown).split()[0]
    assert first in lines[shown.line].split()
