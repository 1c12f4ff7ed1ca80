from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.text.snippet import Snippet, matcher, snippet
from clew.text.tokenise import Matcher, tokens, words
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
    lines = [f"line{i} of the passage, which is not short at all" for i in range(40)]
    lines[25] = "the keel stands here"
    shown = snippet("\n".join(lines), seeking("keel"), width=60)
    first = core(shown).split("\n")[0]
    assert lines[shown.line].endswith(first)
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
    assert len(shown.text) <= 242


@pytest.mark.parametrize("width", range(20, 25))
def test_a_match_cut_in_two_is_not_highlighted(width: int) -> None:
    shown = snippet("京都" * 100, seeking("京都"), width=width)
    assert "".join(marked(shown)) == "京都" * (width // 2)


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


unit = st.sampled_from(
    ["keel", "bolts", "filler", "京都タワー", "getUserName", "é", "x" * 300, "—"]
)
gap = st.sampled_from([" ", "\n", "\n\n", ", ", ""])
texts = st.lists(st.tuples(unit, gap), max_size=60).map(lambda pairs: "".join(map("".join, pairs)))
queries = st.sampled_from(["keel", "keel bolts", "京都", "都", "user name", "nothing", "filler é"])


@unhurried
@given(texts | st.text(), queries, st.integers(20, 400))
@example("\u3000京", "京", 20)
@example("東京都", "都", 20)
def test_any_snippet_is_a_bounded_piece_with_true_highlights(
    text: str, query: str, width: int
) -> None:
    text = text.replace("…", "")
    shown = snippet(text, seeking(query), width=width)
    piece = core(shown)
    assert piece in text
    assert len(piece) <= width
    assert 0 <= shown.line <= text.count("\n")
    wanted = set(tokens(query))
    after = 0
    for start, end in shown.highlights:
        assert after <= start < end <= len(shown.text)
        after = end
        assert "…" not in shown.text[start:end]
        words_marked = shown.text[start:end]
        assert wanted & {*tokens(words_marked), *words_marked}


@unhurried
@given(st.integers(0, 150), st.integers(1, 7))
def test_a_match_is_shown_wherever_it_stands(place: int, per_line: int) -> None:
    pieces = [f"filler{i}" for i in range(150)]
    pieces.insert(place, "keel")
    lines = [" ".join(pieces[i : i + per_line]) for i in range(0, len(pieces), per_line)]
    text = "\n".join(lines)
    shown = snippet(text, seeking("keel"), width=120)
    assert marked(shown) == ["keel"]
    start = text.index(core(shown))
    assert shown.line == text.count("\n", 0, start)
