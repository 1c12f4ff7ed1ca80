from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from listed import Folder, by

import clew
from clew.eval import cases
from clew.filter import Filter
from clew.sources.tokens import tokens
from clew.text.parse import parse
from clew.types import Candidate, Record


class OfStore:
    """What the source needs of a search."""

    def __init__(self, engine: clew.Engine):
        self.store = engine.store


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[clew.Engine]:
    with clew.open(tmp_path, model="none", sources={"tokens": {}}) as opened:
        yield opened


def asked(engine: clew.Engine, text: str, *, depth: int = 20, **options: Any) -> list[Candidate]:
    """The list of the source for words as they are."""
    wanted = Filter(**options.pop("filter", {}))
    query = parse(text, filter=wanted, depth=depth, limit=1, syntax=False)
    found = tokens(Path(), **options)(query, OfStore(engine))  # type: ignore[arg-type]
    assert isinstance(found, list | tuple)
    return list(found)


def both(engine: clew.Engine, text: str, **options: Any) -> list[Candidate]:
    """The list where every record is looked at, which is also that of the index's proposals."""
    looked = asked(engine, text, **options)
    proposed = asked(engine, text, all_up_to=0, **options)
    assert proposed == looked, text
    return looked


# ---------------------------------------------------------------- what it finds


def test_the_score_is_the_share_of_the_words_as_they_are_written(folder: Folder) -> None:
    files = {
        "a.md": "Sarah started fluoxetine in April",
        "b.md": "SARAH moved",
        "c.md": "Sarahs and starting",  # other forms are other words
        "d.md": "nothing of it",
    }
    engine = folder(files, sources={"tokens": {}})
    query = "did Sarah start fluoxetine in april"
    assert by("tokens", engine, query) == {"a.md": 0.75}
    assert by("tokens", engine, "Sarah's fluoxetine") == {"a.md": 1.0, "b.md": 0.5}


def test_below_a_third_nothing_is_given_unless_the_settings_say_so(engine: clew.Engine) -> None:
    engine.add([Record("a", "keel one two"), Record("b", "keel")])
    query = "keel mast sail boom"
    assert both(engine, query) == []
    assert [c.id for c in both(engine, query, least=0.25)] == ["a", "b"]
    with pytest.raises(clew.ConfigError, match="least is a share from 0 to 1"):
        tokens(Path(), least=1.5)


def test_a_query_without_words_of_its_own_finds_nothing(engine: clew.Engine) -> None:
    engine.add([Record("a", "how are you"), Record("b", "what is it")])
    for query in ("how are you", "??? !", "", "a I"):
        assert both(engine, query, least=0.0) == []


def test_the_filter_holds_before_the_cut(engine: clew.Engine) -> None:
    engine.add(
        Record(
            f"{i:03}",
            f"the keel of boat {i}",
            collection="rare" if i % 50 == 0 else "often",
            type="log" if i % 40 == 0 else "note",
            tags=("late",) if i >= 390 else (),
            ended_at=1.0 if i < 300 else None,
        )
        for i in range(400)
    )
    for wanted, count in (
        ({}, 20),
        ({"collection": "rare"}, 8),
        ({"type": "log"}, 10),
        ({"tags": "late"}, 10),
        ({"active": True, "collection": "rare"}, 2),
        ({"active": False, "type": "log", "collection": "rare"}, 2),
        ({"collection": "nobody's"}, 0),
    ):
        assert len(both(engine, "keel of the boat", filter=wanted)) == count
    found = both(engine, "keel boat 7 391", depth=3)
    assert [c.id for c in found] == ["007", "391", "000"]  # ties by id


def test_a_write_is_seen_by_the_next_query(engine: clew.Engine) -> None:
    engine.sources.clear()
    engine.sources["tokens"] = tokens(Path())

    def found(text: str) -> list[str]:
        return [hit.id for hit in engine.search(text, cache=False)]

    engine.add([Record("a", "the keel is red"), Record("b", "the sail is red")])
    assert found("red keel") == ["a", "b"]
    engine.add([Record("a", "the mast is white")])
    assert found("red keel") == ["b"]
    engine.store.lifecycle.end(["b"], at=1.0, reason="superseded")
    assert [h.id for h in engine.search("red", filter={"active": True}, cache=False)] == []
    engine.remove("a")
    assert found("white mast") == []


def test_phrases_and_exclusions_hold(folder: Folder) -> None:
    files = {"a.md": "red keel, long sail", "b.md": "long keel, red sail", "c.md": "red keel rots"}
    engine = folder(files, sources={"tokens": {}})
    assert list(by("tokens", engine, '"red keel" long')) == ["a.md", "c.md"]
    assert list(by("tokens", engine, "red keel -rots")) == ["a.md", "b.md"]


# ---------------------------------------------------------------- both ways agree

WORDS = (
    *("keel", "keels", "Keel", "mast", "sail", "boat", "anxious", "anxiety", "running", "run"),
    *("Sarah", "Škoda", "Zażółć", "naïve", "naive", "café", "cafe", "Straße", "STRASSE", "Brien"),
    *("20mg", "E119", "HX-20417", "v1.2.3", "2026-03-14", "snake_case", "getUserName", "C++"),
    *("don't", "l'école", "école", "O'Brien", "dell'acqua", "acqua", "d’accord", "accord"),
    *("Аркадий", "аркадия", "ёлка", "елка", "Ψυχή", "ψυχη", "the", "of", "is", "7", "42", "x"),
    *("résumé", "re\u0301sume\u0301", "नमस्ते", "สวัสดี", "ภาษาไทย", "فلوكستين"),
)
SIGNS = "京都東北大学茶道龙井无糖犬猫のハナタワー무릎김치𠀀𪜀" + "ｶﾀ"


def some_text(rng: random.Random) -> str:
    pieces = [rng.choice(WORDS) for _ in range(rng.randint(0, 8))]
    for _ in range(rng.randint(0, 2)):
        run = "".join(rng.choice(SIGNS) for _ in range(rng.randint(1, 6)))
        pieces.insert(rng.randint(0, len(pieces)), run)
    return rng.choice((" ", " ", ", ", "-")).join(pieces) or "nothing"


@pytest.mark.parametrize("seed", range(3))
def test_the_index_proposes_what_looking_at_everything_finds(
    engine: clew.Engine, seed: int
) -> None:
    rng = random.Random(seed)
    texts = {f"r{i:04}": some_text(rng) for i in range(3_000)}
    engine.add(Record(name, text) for name, text in texts.items())
    for _ in range(60):
        query = " ".join(rng.sample(WORDS, rng.randint(0, 4)))
        query += " " + "".join(rng.sample(SIGNS, rng.randint(0, 5)))
        looked = asked(engine, query, all_up_to=5_000)
        assert [(c.id, c.score) for c in looked] == cases.score_tokens(query, texts)[:20]
        assert asked(engine, query) == looked, query  # 3,000 are more than are looked at


def test_one_sign_is_a_word_though_the_index_has_pairs(engine: clew.Engine) -> None:
    engine.add(
        [Record("a", "京都に行く"), Record("b", "東京の塔"), Record("c", "京"), Record("d", "都")]
    )
    assert [c.id for c in both(engine, "京")] == ["a", "b", "c"]
    # no pair in common with either: every other sign is
    assert [c.id for c in both(engine, "京東塔")] == ["b", "a", "c"]


def test_words_that_thousands_have_hide_nobody_who_has_more(
    engine: clew.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.sources.tokens.HOLDERS", 100)
    monkeypatch.setattr("clew.sources.tokens.BEST", 50)
    rng = random.Random(5)
    common = ["keel", "mast", "sail"]
    others = [word for word in WORDS if word.lower() not in common]
    engine.add(
        Record(f"r{i:04}", " ".join([*rng.sample(common, 1), *rng.choices(others, k=4)]))
        for i in range(2_500)
    )
    engine.add([Record("zz", "a keel, a mast, a sail"), Record("zy", "keel and zebra")])
    found = asked(engine, "keel mast sail zebra", depth=2)
    assert [(c.id, c.score) for c in found] == [("zz", 0.75), ("zy", 0.5)]


def test_a_long_message_finds_what_shares_most_with_it(engine: clew.Engine) -> None:
    rng = random.Random(7)
    syllables = [f"{a}{b}" for a in "bcdfghklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=3)) for _ in range(900)]
    texts = {f"r{i:04}": " ".join(rng.sample(words, 12)) for i in range(2_200)}
    texts["this"] = " ".join(words[:30])
    engine.add(Record(name, text) for name, text in texts.items())
    message = " ".join(words[:60])
    assert [c.id for c in asked(engine, message)] == ["this"]
    assert asked(engine, message) == asked(engine, message, all_up_to=9_999)
