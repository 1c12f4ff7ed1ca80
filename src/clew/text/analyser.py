"""The one analyser: text into tokens, the same at index and at query time.

    "The café's getUserName()"  →  the cafe getusernam get user name
    "since v1.2.3"              →  sinc v1.2.3 v1 2 3 1.2.3
    "京都タワー"                 →  京都 都タ タワ ワー

- Case and accents are folded; digits are kept.
- Words of Latin letters are stemmed as English (Snowball), Cyrillic as Russian, Arabic as Arabic:
  the script decides, so no language has to be guessed.
- A compound (`getUserName`, `snake_case`, `protocol-137`, `v1.2.3`, `python3`) gives its whole and
  then its parts. The same word always gives the same tokens in the same order, so a phrase in the
  text is the same run of tokens in the query.
- Scripts written without spaces (Han, kana, Hangul, Thai, Lao, Khmer, Burmese) give overlapping
  pairs of characters: any substring of two or more characters is a run of such pairs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from functools import cache
from itertools import accumulate
from typing import Any

from clew.errors import InputError
from clew.types import Terms
from clew.validate import guarded

VERSION = 1
"""Part of every keyword index: raise it when tokens change, and indexes rebuild themselves."""

LONGEST_WORD = 64
"""Longer words (hashes, base64) are cut here, at both ends of the pipeline alike."""
_COMMON = """
    a about an and are as at be been but by can could did do does for from had has have how i if in
    into is it its me my no not of on or our should so some such than that the their them then there
    these they this those to was we were what when where which who whom whose why will with would
    you your
"""
STOPWORDS = frozenset(_COMMON.split())
"""English words too common to tell one text from another. Only queries drop them."""

_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao; Burmese; Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3005\u3007\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han, extensions A to H
)
_MARKS = (
    "\u0300-\u036f\u1dc0-\u1dff"  # combining accents
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"  # Arabic
    "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0980-\u0dff"  # Indic vowel signs
    "\u200c\u200d"  # joiners
)
_LETTER = rf"[^\W_{_SPACELESS}]"
# Letters and marks, joined by single connectors. Possessive: compiles fast, never backtracks.
# In a group: `split` gives text between words, word, text between words, word …
_WORD = (
    rf"([cC]\+\+|[cCfF]#(?!\w)"
    rf"|(?:{_LETTER}++[{_MARKS}]*+(?:(?:_+|[.\-'’·])(?={_LETTER}))?+)++"
    rf"|[{_SPACELESS}]++)"
)
# The same for western texts: compiled in a tenth of the time.
_WESTERN_WORD = re.compile(
    r"([cC]\+\+|[cCfF]#(?!\w)|(?:[^\W_]++(?:(?:_+|[.\-'’·])(?=[^\W_]))?+)++)"
)
_OTHER = re.compile("[^\0-\u02ff\u2010-\u27bf]")
# Where there is nothing but ASCII, by a third less work.
_ASCII_WORD = re.compile(
    r"([cC]\+\+|[cCfF]#(?!\w)|(?:[A-Za-z0-9]++(?:(?:_+|[.\-'])(?=[A-Za-z0-9]))?+)++)"
)
CONNECTOR = re.compile(r"[_.\-·]+")
CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
# Digits, humps (HUMP) or connectors that no ordinary word has.
_IDENTIFIER = re.compile(
    r"(?=.*(?:\d|[a-z][A-Z]|[A-Z]{2}[a-z]|[^\W_]_+[^\W_]|\w\w\.\w\w))[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*"
)
_LETTERS_DIGITS = re.compile(r"([a-z]{3,})(\d+)")
_VERSION_NUMBER = re.compile(r"v(\d+(?:\.\d+)*)")
POSSESSIVE = re.compile(r"['’]s?$|['’]")
# Letters that carry no combining mark when decomposed, though readers see an accent.
_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"}
    | {"ى": "ي", "ـ": None, "\u200c": None, "\u200d": None}
)
_STRIPPED = re.compile(f"[{_MARKS[:11]}\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]")


@cache
def _stemmer(language: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(language, 0)  # our own cache holds whole words


def _fold(word: str) -> str:
    """Lower case without accents. Cyrillic keeps й, which is a letter, not an accent."""
    if word.isascii():
        return word.lower()
    if "\u0400" <= word[0] <= "\u052f":
        plain = unicodedata.normalize("NFC", word.casefold()).replace("ё", "е")
        return _STRIPPED.sub("", plain)
    # Twice: 𝐁 is a B only after the first, and lower case can bring new marks (İ).
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", word).casefold())
    plain = _STRIPPED.sub("", plain).translate(_UNDECOMPOSED)
    return "".join(unicodedata.normalize("NFC", plain).split())


def _stem(word: str) -> str:
    """`word` is folded already."""
    if word.isascii():
        return _stemmer("english").stemWord(word) if word.isalpha() else word
    if "\u0400" <= word[0] <= "\u052f":
        return _stemmer("russian").stemWord(word)  # type: ignore[no-any-return]
    if "\u0600" <= word[0] <= "\u06ff":
        # The feminine ending is often written ه, which the stemmer takes for a pronoun.
        ending = word[:-1] + "ة" if word.endswith("ه") else word
        return _stemmer("arabic").stemWord(ending)  # type: ignore[no-any-return]
    return word


def _analyse(word: str) -> list[str]:
    """One match of _WORD into its tokens: the whole first, then the parts."""
    if unspaced(word):
        run = "".join(unicodedata.normalize("NFKC", word).split())  # ゛ has a space in it
        return [run[i : i + 2] for i in range(len(run) - 1)] if len(run) > 1 else [run]
    if word.endswith(("+", "#")):
        return [word.lower(), word[0].lower()]
    word = unicodedata.normalize("NFC", POSSESSIVE.sub("", word))
    folded = _fold(word)[:LONGEST_WORD] if word else ""
    if not folded:
        return []
    whole = _stem(folded)
    parts: list[str] = []
    if CONNECTOR.search(word) or HUMP.search(word):
        for piece in CONNECTOR.split(word):
            humps = CAMEL.findall(piece) if piece.isascii() and HUMP.search(piece) else [piece]
            folds = [_fold(hump)[:LONGEST_WORD] for hump in humps if hump]
            parts += [_stem(fold) for fold in folds if fold]
            parts += _letters_and_digits(_fold(piece))
    else:
        parts = _letters_and_digits(folded)
    if version := _VERSION_NUMBER.fullmatch(folded):
        parts.append(version[1])
    return [whole, *parts] if parts != [whole] else [whole]


def _letters_and_digits(word: str) -> list[str]:
    """`python3` is also found as `python`, `OAuth2` as `oauth`."""
    split = _LETTERS_DIGITS.fullmatch(word[:LONGEST_WORD])
    return [_stem(split[1]), split[2]] if split else []


MOST_WORDS = 100_000
"""That are kept: 17 MB. Texts have far fewer that come again; numbers and names have no end."""


class _Cache(dict[str, str]):
    """Word → its tokens joined by spaces: prose repeats its words, so most look-ups hit."""

    def __init__(self, analyse: Callable[[str], Iterable[str]]):
        self._analyse = analyse

    def __missing__(self, word: str) -> str:
        if len(self) >= MOST_WORDS:
            self.clear()
        value = " ".join(self._analyse(word))
        if len(word) <= 32:  # runs without spaces are sentences and rarely come again
            self[word] = value
        return value


_cache = _Cache(_analyse)
_pieces = _Cache(lambda piece: filter(None, map(_cache.__getitem__, spelt(piece))))
"""The same for what stands between spaces, which no word goes beyond: a fifth of the time."""


def is_western(text: str) -> bool:
    """Whether it has Latin letters and signs alone, and no marks apart from their letters."""
    return text.isascii() or _OTHER.search(text) is None


def _word(text: str) -> re.Pattern[str]:
    if text.isascii():
        return _ASCII_WORD
    return _WESTERN_WORD if is_western(text) else _any_word()


@cache
def _any_word() -> re.Pattern[str]:
    return re.compile(_WORD)  # takes a while: only where there is such a text


def joined(text: str) -> str:
    """All tokens, separated by spaces: what a keyword index is given."""
    return " ".join(filter(None, map(_pieces.__getitem__, text.split())))


def tokens(text: str) -> list[str]:
    """All tokens in order."""
    return joined(text).split()


def spelt(text: str) -> list[str]:
    """The words as they are written, for an index that has an analyser of its own."""
    return _word(text).findall(text)


def words(text: str, *, keep_stopwords: bool = False) -> list[tuple[str, ...]]:
    """The tokens word by word: a whole, then its parts. Each pair of an unspaced run is a word.

    Stopwords are left out unless there is nothing else.
    """
    found = spelt(text)
    kept = found if keep_stopwords else [w for w in found if w.lower() not in STOPWORDS]
    groups: list[tuple[str, ...]] = []
    for word in kept or found:
        group = tuple(_cache[word].split())
        groups += [(pair,) for pair in group] if unspaced(word) else [group]
    return [group for group in groups if group]


def has_word(group: Sequence[str], held: Set[str]) -> bool:
    """Whether these tokens have a word of `words`: the whole, or all of its parts."""
    return group[0] in held or held >= set(group[1:] or group)


def _normal_characters(run: str, at: int) -> list[tuple[str, int, int]]:
    """The characters of NFKC(run), each with the place it comes from: ﾊﾞ is one, written as two."""
    characters: list[tuple[str, int, int]] = []
    start = 0
    for end in range(1, len(run) + 1):
        # a cluster ends where what follows stands by itself
        together = unicodedata.normalize("NFKC", run[start : end + 1])
        apart = unicodedata.normalize("NFKC", run[start:end]) + unicodedata.normalize(
            "NFKC", run[end : end + 1]
        )
        if end == len(run) or together == apart:
            for character in "".join(unicodedata.normalize("NFKC", run[start:end]).split()):
                characters.append((character, at + start, at + end))
            start = end
    return characters


class Matcher:
    """Finds the words of a text that a query is about. Remembers words and texts: it is made for
    one query."""

    def __init__(self, wanted: Collection[str]):
        self._wanted = wanted
        self._known: dict[str, str | None] = {}
        self._parts: dict[str, set[str]] = {}
        self._initials = {token[0] for token in wanted} | {token[0].upper() for token in wanted}
        self._roots = {root for token in wanted if token.isascii() for root in roots(token)}
        self._roots.add("'")  # whose token has none: O'Brien
        self._texts: dict[str, list[tuple[int, int, str]]] = {}

    def __call__(self, text: str) -> list[tuple[int, int, str]]:
        """(start, end, token) of each match. Unspaced runs match pair by pair."""
        if (found := self._texts.get(text)) is None:
            found = self._among_ascii(text) if text.isascii() else self._among_all(text)
            self._texts[text] = found
        return found

    def tokens(self, text: str) -> set[str]:
        """The tokens that are looked for and there: of a compound, every part."""
        found: set[str] = set()
        for start, end, token in self(text):
            word = text[start:end]
            if (parts := self._parts.get(word)) is None:
                parts = {token, *_cache[word].split()}.intersection(self._wanted)
                self._parts[word] = parts
            found |= parts
            found.add(token)
        return found

    def _among_ascii(self, text: str) -> list[tuple[int, int, str]]:
        """Looks at no more of the text than where a match may be."""
        known, lower = self._known, text.lower()
        found: dict[int, tuple[int, int, str]] = {}
        for some in self._roots:
            at = lower.find(some)
            while at >= 0:
                end = at + 1
                if (word := _word_around(text, lower, at)) is not None:
                    start, end = word.span()
                    if start not in found:
                        if word[0] not in known:
                            self._learn((word[0],))
                        if (token := known[word[0]]) is not None:
                            found[start] = (start, end, token)
                at = lower.find(some, end)
        return sorted(found.values())

    def _among_all(self, text: str) -> list[tuple[int, int, str]]:
        known = self._known
        parts = _word(text).split(text)  # and no finditer: a match object each costs twice as much
        words = parts[1::2]
        self._learn(set(words).difference(known))
        hits = [i for i, word in enumerate(words) if known[word] is not None]
        if not hits:
            return []
        ends = list(accumulate(map(len, parts)))
        found: list[tuple[int, int, str]] = []
        for i in hits:
            word, start, end = words[i], ends[2 * i], ends[2 * i + 1]
            if unspaced(word):
                found += self._in_run(word, start)
            else:
                found.append((start, end, known[word] or ""))
        return found

    def _learn(self, words: Iterable[str]) -> None:
        known, wanted, initials = self._known, self._wanted, self._initials
        for word in words:
            # A plain word and its stem begin alike: most need no analysis to be told apart.
            if word[0] not in initials and word[1:].islower() and word.isascii() and word.isalpha():
                known[word] = None
                continue
            joined = _cache[word]
            if joined in wanted:
                known[word] = joined
            elif " " not in joined and word.isascii():
                known[word] = None
            else:
                known[word] = self._look(word)

    def _in_run(self, run: str, at: int) -> Iterator[tuple[int, int, str]]:
        """Matches within an unspaced run: pairs of characters as indexed, or single ones."""
        characters = _normal_characters(run, at)
        for i, (character, start, end) in enumerate(characters):
            pair = character + characters[i + 1][0] if i + 1 < len(characters) else character
            if pair in self._wanted and len(pair) > 1:
                yield start, characters[i + 1][2], pair
            elif character in self._wanted:
                yield start, end, character

    def _look(self, word: str) -> str | None:
        tokens = _cache[word].split()
        if unspaced(word):  # one character is a query too
            tokens += list(unicodedata.normalize("NFKC", word))
        return next((t for t in tokens if t in self._wanted), None)


def _word_around(text: str, lower: str, at: int) -> re.Match[str] | None:
    """The word of an ASCII text that this character is part of."""
    start = at
    while start and lower[start - 1] in _WORD_CHARACTERS:
        start -= 1
    word = _ASCII_WORD.match(text, start)
    if word is not None and word.end() > at:  # nearly always
        return word
    return next((word for word in _ASCII_WORD.finditer(text, start) if word.end() > at), None)


def roots(token: str) -> tuple[str, ...]:
    """One of these is in every word with this stem: `hop` in hope and hoping, `fl` in fly."""
    changed = token[-1] in "ei" or token.endswith("bl")
    root = token[:-1] if changed and len(token) > 2 else token
    if len(token) == 3 and token.endswith("ie"):
        return root, f"{token[0]}ying"  # tie, tying
    return (root, "skies") if token == "sky" else (root,)


_WORD_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_.-'+#")
_UNSPACED_RANGES = re.findall("(.)(?:-(.))?", _SPACELESS)


def unspaced(token: str) -> bool:
    """Whether it is of a script written without spaces."""
    if token[:1] < "\u0e00":
        return False
    return any(first <= token[0] <= (last or first) for first, last in _UNSPACED_RANGES)


def is_character(token: str) -> bool:
    """Whether it is one character of such a script, which are indexed in pairs."""
    return len(token) == 1 and unspaced(token)


# ---------------------------------------------------------------- scripts

SCRIPTS = {
    "latin": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
    "kana": "\u3040-\u30ff",
    "han": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
}


def known_share(text: str, scripts: Sequence[str]) -> float:
    """The share of the text's letters that are of these scripts; no scripts named: all are."""
    if not scripts or (text.isascii() and "latin" in scripts):
        return 1.0
    letters = sum(character.isalpha() for character in text)
    return len(_pattern(tuple(scripts)).findall(text)) / letters if letters else 1.0


def is_identifier(text: str) -> bool:
    """Whether all words of it are part numbers, error codes or names in programs: TX-4471-B,
    ERR_404, getUserName, os.path.join. Not state-of-the-art, and not k8s.io/node, an address."""
    return bool(words := text.split()) and all(map(_IDENTIFIER.fullmatch, words))


@cache
def _pattern(scripts: tuple[str, ...]) -> re.Pattern[str]:
    # `isalpha` leaves out digits and marks, so these must as well.
    return re.compile(rf"(?=[{''.join(SCRIPTS[name] for name in scripts)}])[^\W\d_]")


# ---------------------------------------------------------------- conditions


def fits(terms: Terms, text: str) -> bool:
    """Whether a text has a query's phrases and none of its exclusions. For sources outside the
    store's indexes, which answer this themselves."""
    if not terms.narrows:
        return True
    found = tokens(text)
    return all(_has(found, phrase) for phrase in terms.phrases) and not any(
        _has(found, phrase) for phrase in terms.excluded
    )


def _has(found: Sequence[str], phrase: Sequence[str]) -> bool:
    run = list(phrase)
    if len(run) == 1 and is_character(run[0]):
        return any(run[0] in pair for pair in found)  # a character is part of two pairs
    return any(found[i : i + len(run)] == run for i in range(len(found) - len(run) + 1))


# ---------------------------------------------------------------- FTS5


@guarded
def fts_escape(text: str, *, op: str = "AND") -> str:
    """Each word quoted, joined by `op`; empty where there is no word.

    >>> fts_escape("deploy production server")
    '"deploy" AND "production" AND "server"'
    """
    if op not in ("AND", "OR"):
        raise InputError(f"words are joined by AND or OR, not by {op!r}")
    words = [word for word in text.replace("\0", " ").split() if any(map(str.isalnum, word))]
    return f" {op} ".join(map(quoted, words))


def quoted(words: str) -> str:
    """Quote as an FTS5 string: these words in a row, whatever characters they have."""
    return '"' + words.replace("\0", " ").replace('"', '""') + '"'


def pairs(text: str) -> str:
    """The overlapping pairs of characters of scripts written without spaces, which FTS5 takes for
    one long word. The last character of a run stands alone as well, so that every character
    begins some token."""
    if text.isascii() or max(text) < "\u0e00":
        return ""
    found: list[str] = []
    for run in spelt(text):
        if unspaced(run) and (cut := tokens(run)):
            found += cut
            if len(cut[-1]) > 1:
                found.append(cut[-1][-1])
    return " ".join(found)
