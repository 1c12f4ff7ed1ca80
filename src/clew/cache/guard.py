"""Whether one query's answer may stand for another's that has nearly the same vector.

A model puts "5 mg aspirin" and "5 g aspirin" at a cosine of 0.96, "Zoe owes Marc" and "Marc owes
Zoe" at 0.99 (bge-small). So beside the cosine, these must agree:

- numbers, with sign, unit and order, also where they are words,
- negations and opposites: no, without, un-, enable and disable; what is excluded or quoted,
- names and identifiers: what is written with a capital or like code must occur in the other,
- the order of names, and of all words where there is a negation or a direction: from, to, than.

When in doubt the answer is no: then the search is made, which is never wrong.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from clew.text import tokenise
from clew.text.stopwords import STOPWORDS

__all__ = ["interchangeable"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[^\W_]+(?:[._\-/'’+#:]+[^\W_]+)*[+#]*")
_NUMBER = re.compile(r"([+\-−]?[$€£¥]?\d+(?:[.,:/]\d+)*)(?:\s?([%°‰]|[°µμ]?[^\W\d_]{1,3}\b))?")
_CODE = re.compile(r"\d|[._/:+#]|[^\W\d_][A-Z]")
_CONTRACTION = re.compile(
    r"(?:ca|do|does|did|is|are|was|were|wo|would|could|should|has|have|had|must|need|ai)n['’]?t"
)
_CONDITION = re.compile(r'(?<!\S)-(?:"[^"]*"|[^\W\d]\w*)|"[^"]*"')
_NUMBER_WORDS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty "
    "sixty seventy eighty ninety hundred thousand million billion half once twice double triple "
    "first second third fourth fifth sixth seventh eighth ninth tenth last"
)
_NEGATIONS = _words(
    "no not none nor neither never nobody nothing nowhere without except excluding exclude lacking "
    "non minus unless avoid "
    "kein keine keinen keiner keinem nicht nie ohne außer "  # German
    "pas sans jamais aucun aucune sauf "  # French
    "sin nunca ningún ninguna excepto "  # Spanish
    "senza mai nessun nessuna tranne "  # Italian
    "sem não nenhum nenhuma exceto "  # Portuguese
    "не нет без кроме никогда"  # Russian
)
# In scripts written without spaces a part of a word is enough.
_NEGATING = re.compile("[不没沒無无非未勿別别]|ない|なし|ません|안|않|없|아닌")
_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "de", "mis", "anti", "a")
_OPPOSITES = (
    "enable/disable on/off start/stop start/end open/close increase/decrease increase/reduce "
    "raise/lower add/remove create/delete allow/deny allow/forbid accept/reject before/after "
    "with/without import/export upload/download encrypt/decrypt encode/decode input/output in/out "
    "up/down left/right above/below over/under min/max minimum/maximum more/less most/least "
    "best/worst better/worse good/bad high/low higher/lower highest/lowest buy/sell win/lose "
    "push/pull read/write send/receive old/new older/newer oldest/newest true/false pros/cons "
    "internal/external public/private success/failure pass/fail north/south east/west"
)
_DIRECTIONS = _words(
    "to from into onto than before after over under against versus vs by between then until with "
    "nach von vor als mit vers depuis avant après avec"
)


class _Meaning(NamedTuple):
    """What of a query must not differ."""

    words: tuple[str, ...]
    """Stems."""
    forms: frozenset[str]
    """Stems, and the words as they are: legal and illeg(al) are stemmed differently."""
    numbers: tuple[str, ...]
    conditions: tuple[str, ...]
    names: frozenset[str]
    ordered: bool


def interchangeable(one: str, other: str) -> bool:
    """Whether nothing that a vector overlooks tells these two apart."""
    if one == other:
        return True
    a, b = _meaning(one), _meaning(other)
    if a.numbers != b.numbers or a.conditions != b.conditions:
        return False
    mine, theirs = frozenset(a.words), frozenset(b.words)
    if not a.names <= theirs or not b.names <= mine:
        return False
    if _opposed(a.forms - b.forms, b.forms - a.forms):
        return False
    kept = mine & theirs if a.ordered or b.ordered else a.names | b.names
    return _sequence(a.words, kept) == _sequence(b.words, kept)


@lru_cache(maxsize=4096)
def _meaning(text: str) -> _Meaning:
    found = _WORD.findall(text)
    folded = [word.casefold() for word in found]
    stems = tuple(map(_stem, found))
    numbers = [number + _unit(unit) for number, unit in _NUMBER.findall(text)]
    numbers += [c for c in text if c.isnumeric() and not c.isascii()]  # ½, Ⅳ, 三
    numbers += [word for word in folded if word in _NUMBER_WORDS]
    conditions = [word for word in folded if word in _NEGATIONS] + _NEGATING.findall(text)
    conditions += ["not" for w in folded if w == "cannot" or _CONTRACTION.fullmatch(w)]
    conditions += _CONDITION.findall(text.casefold())
    names = {
        stem
        for word, small, stem in zip(found, folded, stems, strict=True)
        if small not in STOPWORDS and (word[0].isupper() or _CODE.search(word))
    }
    ordered = bool(conditions) or not _DIRECTIONS.isdisjoint(folded)
    return _Meaning(
        words=stems,
        forms=frozenset((*folded, *stems)),
        numbers=tuple(numbers),
        conditions=tuple(sorted(conditions)),
        names=frozenset(names),
        ordered=ordered,
    )


def _stem(word: str) -> str:
    return tokenise.joined(word) or word.casefold()


def _unit(found: str) -> str:
    """Nothing where it is no unit: "2024 the"."""
    return "" if found.casefold() in STOPWORDS else found


def _opposed(mine: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether one says the opposite of a word that the other has instead."""
    opposites = _opposites()
    if any(not theirs.isdisjoint(opposites.get(word, ())) for word in mine):
        return True
    return any(
        prefix + word in others
        for words, others in ((mine, theirs), (theirs, mine))
        for word in words
        for prefix in _PREFIXES
    )


@cache
def _opposites() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pair in _OPPOSITES.split():
        one, other = map(_stem, pair.split("/"))
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


def _sequence(words: tuple[str, ...], kept: frozenset[str]) -> list[str]:
    """The kept ones in order of first mention; common words say nothing by their place."""
    return [word for word in dict.fromkeys(words) if word in kept and word not in STOPWORDS]
