"""Names in running text, by rules: what a person would underline.

Capitalised phrases, acronyms, identifiers, what stands in code marks, titles in quotation marks.
A word at the beginning of a sentence is capitalised anyway: alone it counts only where the same
text has it elsewhere as well. Scripts without capitals give what they quote, and katakana.

`key` is what two spellings of one name have in common: case, accents, plurals, joints.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from clew.text.analyser import STOPWORDS, spelt, unspaced

LONGEST_NAME = 80
MOST_WORDS = 8


class Named(NamedTuple):
    """A name where it stands."""

    text: str
    kind: str
    """name, acronym, code, symbol or title."""
    at: int


# ---------------------------------------------------------------------- keys

_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_ACRONYMS = re.compile(r"[A-Z]{2,}s")
_POSSESSIVE = re.compile(r"['’]s?$|['’]")
_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"}
)
_JOINTS = re.compile(r"[_.\-·]+")


@lru_cache(maxsize=100_000)
def key(name: str) -> str:
    """The same for `Pod Disruption Budgets`, `pod-disruption-budget` and `PodDisruptionBudget`.

    Empty where there is nothing to compare.
    """
    parts: list[str] = []
    for word in spelt(unicodedata.normalize("NFKC", name)):
        if unspaced(word):
            parts.append(word)
            continue
        for piece in _JOINTS.split(word):
            if _ACRONYMS.fullmatch(piece):  # APIs
                parts.append(piece[:-1].lower())
                continue
            humps = _HUMPS.findall(piece) if piece.isascii() and _HUMP.search(piece) else [piece]
            parts += [plain for hump in humps if (plain := _singular(_folded(hump)))]
    return " ".join(parts[:12])


def _folded(word: str) -> str:
    lower = _POSSESSIVE.sub("", word.casefold())
    if lower.isascii():
        return lower
    plain = unicodedata.normalize("NFKD", lower).translate(_UNDECOMPOSED)
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", plain)


def _singular(word: str) -> str:
    """English plurals only, and none of words that merely end in s."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes")):
        return word[:-2]
    return word[:-1]


# ---------------------------------------------------------------------- rules


def _capitals() -> str:
    """Capital letters of the alphabets that have them, as ranges."""
    found = [c for c in range(0x530) if chr(c).isupper()]
    found += [c for c in range(0x1E00, 0x2000) if chr(c).isupper()]
    ranges: list[list[int]] = []
    for c in found:
        if ranges and c == ranges[-1][1] + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in ranges)


_UPPER = _capitals()
_CAP = rf"[{_UPPER}](?:[\w’'·-]*\w)?"
_LINK = r"(?:of the|of|for|de la|de|la|von der|von|van der|van|der|du|di|&)"
_PHRASE = re.compile(rf"(?<!\w){_CAP}(?: (?:{_LINK} )?(?:{_CAP}|\d[\w.]*\w|\d)(?!\w)){{0,7}}")
_IDENTIFIER = re.compile(
    r"(?<![\w/.-])(?:[a-z]+[a-z0-9]*(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
    r"|[A-Za-z]\w*_\w*\w)(?![\w/])"
)
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]{2,60})`(?!`)")
_QUOTED = re.compile(r"“([^“”\n]{3,80})”|\"([^\"\n]{3,80})\"|«([^«»\n]{3,80})»|„([^„“\n]{3,80})“")
_CJK_QUOTED = re.compile(r"「([^「」\n]{2,30})」|『([^『』\n]{2,30})』|《([^《》\n]{2,30})》")
_KATAKANA = re.compile(r"[ァ-ヴー]{3,}(?:[・][ァ-ヴー]{2,})*")
_FENCE = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NOT_PROSE = re.compile(r"<[a-zA-Z/!][^<>\n]*>|https?://\S+|\]\([^()\n]*\)|^#.*$|^ {4}\S.*$", re.M)
_SENTENCE_END = re.compile(
    r"(?:[.!?:;…][\"”’)*_]*\s+|\n\s*|[|>*+-]\s+|\d[.)]\s+|^\s*)[\"“(*_\[]*\Z"
)
_LETTER = re.compile(r"[^\W\d_]")
_CALENDAR = """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday jan feb mar apr jun jul aug sep oct
    nov dec mon tue wed thu fri sat sun note notes todo fixme warning caution tip example examples
    see yes no ok true false null none figure table chapter section page
    januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag
    samstag sonntag der die das ein eine und oder aber wenn wer wie was wo ich wir sie er es am im
    an auf aus bei bis für mit nach von vor zu zum zur siehe"""
_NO_NAMES = frozenset(_CALENDAR.split())
"""Capitalised for other reasons, or filling words of languages that capitalise them."""


def names(text: str) -> Iterator[Named]:
    """Every name of a prose text, where it stands. A name may come more than once."""
    prose = _FENCE.sub(_blank, text)
    for span in _CODE_SPAN.finditer(prose):
        words = span[1].strip().strip("()").strip()
        if len(words.split()) <= 3 and _LETTER.search(words) and len(words) > 1:
            yield Named(words, "code", span.start())
    prose = _NOT_PROSE.sub(_blank, _CODE_SPAN.sub(_blank, prose))
    for pattern, kind in ((_QUOTED, "title"), (_CJK_QUOTED, "title")):
        for quoted in pattern.finditer(prose):
            words = next(group for group in quoted.groups() if group).strip(" ,.;:!?")
            if _is_title(words):
                yield Named(words, kind, quoted.start())
    for found in _IDENTIFIER.finditer(prose):
        yield Named(found[0], "symbol", found.start())
    for found in _KATAKANA.finditer(prose) if not prose.isascii() else ():
        yield Named(found[0], "name", found.start())
    yield from _phrases(prose)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _is_title(words: str) -> bool:
    if words[:1] and unspaced(words[0]):
        return True
    count = len(words.split())
    return 2 <= count <= MOST_WORDS and words[0].isupper()


def _phrases(prose: str) -> Iterator[Named]:
    """Capitalised phrases; those at the beginning of a sentence as far as they can be trusted."""
    sure: list[Named] = []
    unsure: list[tuple[str, int]] = []
    for found in _PHRASE.finditer(prose):
        at = found.start()
        words = _without_fillers(found[0])
        if not words:
            continue
        shift = len(found[0]) - len(words)
        if not shift and _SENTENCE_END.search(prose, max(0, at - 12), at):
            unsure.append((words, at))
        else:
            sure.append(_named(words, at + shift))
    known = {key(named.text) for named in sure}
    yield from sure
    for words, at in unsure:
        first, _, rest = words.partition(" ")
        if _is_acronym(first) or key(words) in known:
            yield _named(words, at)
        elif rest and key(rest) in known:
            yield _named(rest, at + len(first) + 1)
        elif rest:
            yield _named(words, at)


def _without_fillers(phrase: str) -> str:
    """Without the words in front that only begin a sentence, and not what names nothing."""
    words = phrase
    while words:
        first, _, rest = words.partition(" ")
        plain = first.lower().rstrip("’'")
        if plain not in STOPWORDS and plain not in _NO_NAMES and not first.isdigit():
            break
        if _is_acronym(first) and plain not in _NO_NAMES and len(first) > 2:
            break
        words = rest
    words = re.sub(r"[’']s\Z", "", words).rstrip("’'-. ")
    return words if 2 <= len(words) <= LONGEST_NAME else ""


def _is_acronym(word: str) -> bool:
    letters = [c for c in word.removesuffix("s") if c.isalpha()]
    return 2 <= len(letters) <= 6 and all(c.isupper() for c in letters)


def _named(words: str, at: int) -> Named:
    return Named(words, "acronym" if _is_acronym(words) else "name", at)


_CODE_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w{2,60}")


def symbols(text: str) -> Iterator[Named]:
    """Names in source code that are made of several words, so that they are somebody's own."""
    for found in _CODE_WORD.finditer(text):
        word = found[0].strip("_")
        if "_" in word or _HUMP.search(word):
            yield Named(sys.intern(word), "symbol", found.start())


# ---------------------------------------------------------------------- acronyms

_BEHIND = re.compile(r"\(([A-Z][A-Za-z0-9&-]{1,9}?)s?\)")
_WORD_BEFORE = re.compile(r"[\w’'-]+")
_IN_BRACKETS = re.compile(r"(?<!\w)([A-Z][A-Z0-9&-]{1,9})s? \(([^()\n]{4,80})\)")


def expansions(text: str) -> Iterator[tuple[str, str]]:
    """(acronym, what it stands for): `Pod Disruption Budget (PDB)`, `PDB (pod disruption budget)`.

    The initials have to fit: letter by letter, words such as `of` may be passed over.
    """
    for found in _BEHIND.finditer(text):
        letters = [c for c in found[1].upper() if c.isalpha()]
        if len(letters) < 2 or sum(c.isupper() for c in found[1]) < 2:
            continue
        before = text[max(0, found.start() - 120) : found.start()]
        line = before[before.rfind("\n\n") + 1 :]
        before_it = list(_WORD_BEFORE.finditer(line))
        if (start := _initials([w[0] for w in before_it], letters)) is not None:
            yield found[1], " ".join(line[before_it[start].start() :].split()).strip(' *_`"“”,;:')
    for found in _IN_BRACKETS.finditer(text):
        words = [w[0] for w in _WORD_BEFORE.finditer(found[2])]
        letters = [c for c in found[1] if c.isalpha()]
        if _initials(words, letters) == 0:
            yield found[1], " ".join(found[2].split()).strip(' *_`"“”')


def _initials(words: list[str], letters: list[str]) -> int | None:
    """Where the words begin whose initials these letters are, reading from the last."""
    at = len(words) - 1
    for place, letter in enumerate(reversed(letters)):
        while at >= 0 and words[at][0].upper() != letter:
            if not place or words[at].lower() not in STOPWORDS:
                return None
            at -= 1
        if at < 0:
            return None
        at -= 1
    return at + 1
