"""What one record says of entities: the names in it and how they hang together, by rules and, where
there is one, by a chat model.

Everything here follows from the record alone, so that an edit of one costs one. What the names of
different records have to do with each other is found in assemble.py.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from clew.ingest.readers.text import title_from
from clew.text.analyser import CAMEL, CONNECTOR, HUMP, POSSESSIVE, STOPWORDS, spelt, unspaced
from clew.text.passage import HEADINGS, aliases
from clew.types import Chunk, Record

BY_RULES = " by rules"
"""Marks the digest of a record that the chat model failed to read: it is read again next time."""
VERSION = 6  # of the rules: raise it when they change, and every record is read again
MOST_NAMES = 250  # names kept of one record, the most frequent ones
MOST_LINKS = 500
MOST_CHARACTERS = 2_000_000  # of one record that are looked at
MOST_CHUNKS = 64  # passages remembered of one name
LONGEST_NAME = 80
MOST_WORDS = 8


class Named(NamedTuple):
    """A name where it stands."""

    text: str
    kind: str
    """name, acronym, code, symbol or title."""
    at: int


# ---------------------------------------------------------------------- keys

_ACRONYMS = re.compile(r"[A-Z]{2,}s")
_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"}
)


@lru_cache(maxsize=20_000)
def key(name: str) -> str:
    """The same for `Pod Disruption Budgets`, `pod-disruption-budget` and `PodDisruptionBudget`.

    Empty where there is nothing to compare.
    """
    parts: list[str] = []
    for word in spelt(unicodedata.normalize("NFKC", name)):
        if unspaced(word):
            parts.append(word)
            continue
        for piece in CONNECTOR.split(word):
            if _ACRONYMS.fullmatch(piece):  # APIs
                parts.append(piece[:-1].lower())
                continue
            humps = CAMEL.findall(piece) if piece.isascii() and HUMP.search(piece) else [piece]
            parts += [plain for hump in humps if (plain := _singular(_folded(hump)))]
    return " ".join(parts[:12])


def _folded(word: str) -> str:
    lower = POSSESSIVE.sub("", word.casefold())
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


_UPPER = "".join(filter(str.isupper, map(chr, (*range(0x530), *range(0x1E00, 0x2000)))))
"""Capital letters of the alphabets that have them."""
_CAP = rf"[{_UPPER}](?:[\w’'·-]*\w)?"
_LINK = r"(?:of the|of|for|de la|de|la|von der|von|van der|van|der|du|di|&)"
_PHRASE = re.compile(rf"(?<!\w){_CAP}(?: (?:{_LINK} )?(?:{_CAP}|\d[\w.]*\w|\d)(?!\w)){{0,7}}")
_IDENTIFIER = re.compile(
    r"(?<![\w/.-])(?:[a-z]+[a-z0-9]*(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
    r"|[A-Za-z]\w*_\w*\w)(?![\w/])"
)
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]{2,60})`(?!`)")
_ROLE_MARKS = re.compile(r"\A[~!]*(?:\.(?=[A-Z]))?")
"""How reStructuredText says that only a part of a name is shown, or that any module's is meant."""
_QUOTED = re.compile(r"“([^“”\n]{3,80})”|\"([^\"\n]{3,80})\"|«([^«»\n]{3,80})»|„([^„“\n]{3,80})“")
_CJK_QUOTED = re.compile(r"「([^「」\n]{2,30})」|『([^『』\n]{2,30})』|《([^《》\n]{2,30})》")
_KATAKANA = re.compile(r"[ァ-ヴー]{3,}(?:[・][ァ-ヴー]{2,})*")
FENCE = re.compile(r"^[ \t>]*(```|~~~).*?(?:^[ \t>]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_TEMPLATE = re.compile(
    r"\A(?:---|\+\+\+)\n.*?\n(?:---|\+\+\+|\.\.\.)\n|<!--.*?-->|\{\{.*?\}\}|\{%.*?%\}", re.DOTALL
)
"""Front matter, comments and what a site generator puts something in the place of."""
_NOT_A_NAME = re.compile(r"[{}<>$|\\*\[\]]")
_NOT_PROSE = re.compile(
    r"<[a-zA-Z/!][^<>\n]*>|https?://\S+|\]\([^()\n]*\)|^#.*$|^ {4}\S.*$"
    r"|(?<![\w:]):[a-z][\w+-]*:(?!:)",
    re.M,
)
"""Tags, addresses, headings, code, and what stands between colons (`:white_check_mark:`)."""
_SENTENCE_END = re.compile(
    r"(?:[.!?:;…][\"”’)*_]*\s+|\n\s*|[|>*+-]\s+|\d[.)]\s+|^\s*)[\"“(*_\[]*\Z"
)
_LETTER = re.compile(r"[^\W\d_]")
_CALENDAR = """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday jan feb mar apr jun jul aug sep oct
    nov dec mon tue wed thu fri sat sun note notes todo fixme warning caution tip example examples
    see yes no ok true false null none figure table chapter section page
    januar februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag
    let use using used set get run make add create check click open start stop try given first
    second next new old every each many most other another instead however therefore also nil here
    there above below
    undefined string integer boolean number object array int bool default optional required
    samstag sonntag der die das ein eine und oder aber wenn wer wie was wo ich wir sie er es am im
    an auf aus bei bis für mit nach von vor zu zum zur siehe"""
_NO_NAMES = frozenset(_CALENDAR.split())
"""Capitalised for other reasons, or filling words of languages that capitalise them."""


def names(text: str) -> Iterator[Named]:
    """Every name of a prose text, where it stands: what a person would underline. A name may come
    more than once. Scripts without capitals give what they quote, and katakana."""
    prose = FENCE.sub(_blank, _TEMPLATE.sub(_blank, text))
    for span in _CODE_SPAN.finditer(prose):
        words = _ROLE_MARKS.sub("", span[1].strip()).strip("()").strip()
        if len(words.split()) <= 3 and _LETTER.search(words) and len(words) > 1:
            yield Named(words, "code", span.start())
    prose = _NOT_PROSE.sub(_blank, _CODE_SPAN.sub(_blank, prose))
    for pattern in (_QUOTED, _CJK_QUOTED):
        for quoted in pattern.finditer(prose):
            words = next(group for group in quoted.groups() if group).strip(" ,.;:!?")
            capital = words[:1].isupper() and 2 <= len(words.split()) <= MOST_WORDS
            if capital or unspaced(words):
                yield Named(words, "title", quoted.start())
    for found in _IDENTIFIER.finditer(prose):
        yield Named(found[0], "symbol", found.start())
    for found in _KATAKANA.finditer(prose) if not prose.isascii() else ():
        yield Named(found[0], "name", found.start())
    yield from _phrases(prose)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _phrases(prose: str) -> Iterator[Named]:
    """Capitalised phrases. A word at the beginning of a sentence is capitalised anyway: alone it
    counts only where the same text has it elsewhere as well."""
    sure: list[Named] = []
    unsure: list[tuple[str, int]] = []
    for found in _PHRASE.finditer(prose):
        at = found.start()
        words = _without_fillers(found[0])
        if not words:
            continue
        shift = found[0].find(words)
        if not shift and _SENTENCE_END.search(prose, max(0, at - 12), at):
            unsure.append((words, at))
        else:
            sure.append(_named(words, at + shift))
    names = {text for text in {named.text for named in sure} if _is_name(text, prose)}
    sure = [named for named in sure if named.text in names]
    known = set(map(key, names))
    yield from sure
    for words, at in unsure:
        first, _, rest = words.partition(" ")
        if _is_acronym(first) or key(words) in known:
            yield _named(words, at)
        elif rest and key(rest) in known:
            yield _named(rest, at + len(first) + 1)
        elif rest:
            yield _named(words, at)


def _is_name(words: str, prose: str) -> bool:
    """Whether one word is not as often written as a common one."""
    if not words[1:].islower():
        return True
    plain = prose.count(f" {words.lower()} ") + prose.count(f" {words.lower()},")
    return plain <= prose.count(words)


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
    while (last := words.rpartition(" "))[0] and last[2].lower() in STOPWORDS:  # OBJECTIVE To
        words = last[0]
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
        if "_" in word or HUMP.search(word):
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


# ---------------------------------------------------------------------- titles of other pages

_ASIDE = re.compile(r"\s*\([^()]*\)\s*\Z")
LONGEST_TITLE = 12  # pieces of a key; characters in a script without spaces
MOST_TITLES = 200  # titles of others that are kept of one record, the first that it names


def title_keys(title: str) -> list[str]:
    """What a page is called: `Brian Tse (writer)` is Brian Tse as well."""
    return list(dict.fromkeys(k for t in (title, _ASIDE.sub("", title)) if len(k := key(t)) > 1))


class TitleFinder:
    """Finds which of many titles a text writes, in one pass over its words."""

    def __init__(self, keys: Iterable[str]):
        self._keys = frozenset(keys)
        lengths: dict[str, set[int]] = {}
        for each in self._keys:
            first, *more = each.split()
            lengths.setdefault(first, set()).add(1 + len(more))
        self._lengths = {first: sorted(some, reverse=True) for first, some in lengths.items()}
        self._unspaced = any(unspaced(each[:1]) for each in self._keys)

    def __call__(self, text: str) -> list[str]:
        """Keys in the order of their first place, the longest where several begin. A title of one
        word counts where the word is written as a name: `Use` begins many sentences."""
        words = spelt(text[:MOST_CHARACTERS])
        pieces = [(piece, word) for word in words for piece in key(word).split() or ("",)]
        found: dict[str, None] = {}
        refused: set[str] = set()
        skip = 0
        for at, (piece, word) in enumerate(pieces):
            if self._unspaced and piece and unspaced(piece[0]):
                self._find_within(piece, found)
            elif at >= skip and piece in self._lengths:
                for length in self._lengths[piece]:
                    name = " ".join(piece for piece, _ in pieces[at : at + length])
                    if name not in self._keys or (length == 1 and word in refused):
                        continue
                    if length > 1 or name in found or _is_written_as_name(word, name, text):
                        found[name] = None
                        skip = at + length
                        break
                    refused.add(word)
        return list(found)

    def _find_within(self, run: str, found: dict[str, None]) -> None:
        at = 0
        while at < len(run):
            for end in range(min(len(run), at + LONGEST_TITLE), at + 1, -1):
                if run[at:end] in self._keys:
                    found[run[at:end]] = None
                    at = end - 1
                    break
            at += 1


def _is_written_as_name(word: str, name: str, text: str) -> bool:
    """Whether the word is all of this name, and stands somewhere with a capital within a sentence,
    not as a part of a longer name."""
    word = POSSESSIVE.sub("", word)
    if not word[:1].isupper() or name in STOPWORDS or name in _NO_NAMES or key(word) != name:
        return False
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        end += next((len(more) for more in ("'s", "’s", "'", "’") if text.startswith(more, end)), 0)
        before, behind = text[max(0, at - 2) : at], text[end : end + 2]
        within = before[1:] in (" ", "(") and (before[0].islower() or before[0] in ",;:( ")
        longer = behind[:1].isalnum() or behind[:1] in ("_", "-", "’", "'", "/")
        if within and not longer and not (behind[:1] == " " and behind[1:].isupper()):
            return True
        at = text.find(word, end)
    return False


# ---------------------------------------------------------------------- extracts


@dataclass(slots=True)
class Mention:
    """A name, how it is written, what it is, how often it comes, and in which passages."""

    text: str
    kind: str
    count: int = 0
    chunks: list[int] = field(default_factory=list)


Relations = list[tuple[str, str, str]]
"""(name, how they are related, name)"""
Proposal = tuple[dict[str, str], Relations]
"""Names with their kinds, and relations, that a chat model found in one passage."""


@dataclass(slots=True)
class Extract:
    """Of one record. Names are keyed as `key` has them."""

    mentions: dict[str, Mention] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    """Other names of the record itself: of its file, aliases in its front matter."""
    acronyms: list[tuple[str, str]] = field(default_factory=list)
    """(acronym, what it stands for), as keys."""
    anchors: list[tuple[str, str]] = field(default_factory=list)
    """(target of a link, the words it is written with)."""
    relations: Relations = field(default_factory=list)
    """Between keys; the first is empty where it is the record."""
    titles: list[str] = field(default_factory=list)
    """Of other records, as keys, in the order in which the text names them."""

    def to_json(self) -> str:
        rows = [[k, m.text, m.kind, m.count, m.chunks] for k, m in self.mentions.items()]
        more = self.acronyms, self.anchors, self.relations, self.titles
        return json.dumps([rows, self.own, *more])

    @classmethod
    def from_json(cls, text: str) -> Extract:
        rows, own, *pairs, titles = json.loads(text)
        mentions = {k: Mention(*rest) for k, *rest in rows}
        acronyms, anchors, relations = ([tuple(x) for x in some] for some in pairs)
        return cls(mentions, own, acronyms, anchors, relations, titles)


class RecordExtract(NamedTuple):
    """A record as it was when it was read."""

    id: str
    title: str
    path: str | None
    data: Extract
    digest: str = ""
    """Of the version that was read."""


def digest(record: Record, *, llm: str = "") -> str:
    """What an extract depends on."""
    said = [
        *(VERSION, llm, record.title, record.path, record.type),
        *(record.tags, record.links, record.metadata, record.content),
    ]
    return hash_text(json.dumps(said, sort_keys=True, default=str, ensure_ascii=False))


def hash_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# ---------------------------------------------------------------------- by rules


def extract(
    record: Record,
    chunks: Sequence[Chunk],
    *,
    proposed: Mapping[int, Proposal] | None = None,
    find_titles: TitleFinder | None = None,
) -> Extract:
    """By rules; `proposed` is what a chat model found in single passages, which takes the place of
    the rules for running text there."""
    found = Extract()
    proposed = proposed or {}
    text = record.content[:MOST_CHARACTERS]
    starts = [chunk.start for chunk in chunks]

    def chunk_at(offset: int) -> int:
        return max(0, bisect_right(starts, offset) - 1)

    if record.title:
        _add(found, record.title, "page", 0)
    own = [stem] if record.path and _tells((stem := title_from(record.path)), record.title) else []
    own += [alias for alias in aliases(record.metadata) if len(alias) <= LONGEST_NAME]
    found.own = [name for name in map(key, own) if name]
    for tag in record.tags:
        _add(found, tag, "tag", 0)
    for name, text_of in _fields(record.metadata):
        _add(found, text_of, "field", 0)
        found.relations.append(("", name, key(text_of)))
    code = record.type == "code"
    for i, chunk in enumerate(chunks):
        for heading in chunk.heading.split(HEADINGS):
            if code and (defined := _DEFINED.search(heading)):
                _add(found, defined[1], "symbol", i)
                stated = "", "defines", key(defined[1])
                if stated not in found.relations:
                    found.relations.append(stated)
            elif heading and heading != record.title and len(heading.split()) <= 8:
                _add(found, heading.strip("`() "), "heading", i)
    for named in symbols(text) if code else names(text):
        if (at := chunk_at(named.at)) not in proposed:
            _add(found, named.text, named.kind, at)
    for at, (entities, relations) in proposed.items():
        for name, kind in entities.items():
            _add(found, name, kind, at)
        for first, relation, second in relations:
            if (a := key(first)) in found.mentions and (b := key(second)) in found.mentions:
                found.relations.append((a, relation, b))
    if not code:
        found.acronyms = _known(found, expansions(text))
    for offset, target, words in _anchors(record, text):
        found.anchors.append((target, words))
        if words and words != target and not (words[:1].islower() or len(words.split()) > 5):
            _add(found, words, "link", chunk_at(offset))
        if len(found.anchors) >= MOST_LINKS:
            break
    seen = {target for target, _ in found.anchors}
    found.anchors += [(link, "") for link in record.links[:MOST_LINKS] if link not in seen]
    if find_titles is not None:
        found.titles = find_titles(text)[:MOST_TITLES]
    if len(found.mentions) > MOST_NAMES:
        given = ("page", "tag", "field", "link", "heading", "acronym")

        def standing(name: str) -> tuple[int, str]:  # named on purpose before named in passing
            mention = found.mentions[name]
            return -mention.count - (1000 if mention.kind in given else 0), name

        kept = sorted(found.mentions, key=standing)
        found.mentions = {k: found.mentions[k] for k in sorted(kept[:MOST_NAMES])}
    return found


def _tells(stem: str, title: str) -> bool:
    """Whether a file's name is another name of its page: of several words, or one that the title
    writes in capitals. `names.md` is not what everybody calls Object Names and IDs."""
    said = key(stem)
    if " " in said or not title or said == key(title):
        return True
    return any(key(word) == said and not word[1:].islower() for word in title.split())


_DEFINED = re.compile(
    r"\A(?:(?:async|def|class|function|func|fn|struct|enum|interface|trait|impl|type|module|package"
    r"|public|private|protected|static|export|default|abstract|final|const|pub) +)*+"
    r"([A-Za-z_$][\w$]*)"
)
"""The name in what a definition begins with."""


def _add(found: Extract, name: str, kind: str, chunk: int) -> None:
    name = " ".join(name.replace("`", "").split()).strip("* ")
    if not name.startswith("_"):
        name = name.rstrip("_")  # a reference of reStructuredText
    if not 2 <= len(name) <= LONGEST_NAME or not (k := key(name)) or len(k) < 2:
        return
    if k.replace(" ", "").isdigit():
        return
    if kind != "page" and (k in _NO_NAMES or k in STOPWORDS or _NOT_A_NAME.search(name)):
        return
    mention = found.mentions.get(k)
    if mention is None:
        mention = found.mentions[k] = Mention(name, kind)
    mention.count += 1
    if len(mention.chunks) < MOST_CHUNKS and chunk not in mention.chunks:
        mention.chunks.append(chunk)


def _known(found: Extract, pairs: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Both sides as keys; a long form that is not written with capitals is a name all the same."""
    known: list[tuple[str, str]] = []
    for short, long in pairs:
        if len(long.split()) <= 10 and (a := key(short)) and (b := key(long)) and a != b:
            _add(found, long, "name", 0)
            _add(found, short, "acronym", 0)
            known.append((a, b))
    return list(dict.fromkeys(known))


_PLAIN = """aliases alias title description summary date created updated modified published lastmod
    status draft layout weight importance priority effort id uid slug url permalink type
    content_type lang language version template image cover excerpt min-kubernetes-server-version
    domain order sidebar toc tag tags"""
_PLAIN_FIELDS = frozenset(_PLAIN.split())
"""Front matter that describes the page and names nothing."""
_BRACKETS = re.compile(r"\[\[([^\[\]|#]*)(?:#[^\[\]|]*)?(?:\|[^\[\]]*)?\]\]")


def _fields(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Front matter that names somebody or something: author: Łukasz Brandt."""
    for name, given in metadata.items():
        if str(name).casefold() in _PLAIN_FIELDS:
            continue
        for value in given[:20] if isinstance(given, (list, tuple)) else (given,):
            if not isinstance(value, str) or not 2 <= len(value) <= 60 or "://" in value:
                continue
            plain = _BRACKETS.sub(lambda found: found[1], value).strip()
            if len(plain.split()) <= 6 and key(plain) and not key(plain).replace(" ", "").isdigit():
                yield str(name), plain


_WIKI = re.compile(r"\[\[([^\[\]|#\n]*)(?:#[^\[\]|\n]*)?(?:\\?\|([^\[\]\n]*))?\]\]")
_INLINE = re.compile(r"(?<!!)\[([^\[\]\n]{1,100})\]\([ \t]*<?([^\s()<>]+)>?[^()\n]*\)")


def _anchors(record: Record, text: str) -> Iterator[tuple[int, str, str]]:
    """(where, target, words) of the links that the reader took for such."""
    if record.type != "markdown" and "](" not in text and "[[" not in text:
        return
    known = set(record.links)
    bare = not known and record.path is None  # a record that no reader has seen
    for found in _WIKI.finditer(text):
        target = found[1].strip().removesuffix("\\").strip()
        if target in known or (bare and target):
            yield found.start(), target, (found[2] or "").strip()
    for found in _INLINE.finditer(text):
        target, section, _ = found[2].partition("#")
        target = target.partition("?")[0]
        if target in known or (bare and target and ":" not in target):
            # the words of a link to a section are about that
            yield found.start(), target, "" if section else found[1].strip(" *_`")
