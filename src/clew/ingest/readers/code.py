"""Source code and configuration: kept as it is, less its licence, with its definitions as headings.

The definitions come from patterns and not from parsers: they have only to be good enough to cut a
file between functions and to say in which class a line stands, in any language and in any state.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from clew.ingest.readers.text import Span, cut_spans, decode
from clew.types import Document

_DATA = tomllib.loads(Path(__file__).with_name("languages.toml").read_text("utf-8"))
_LANGUAGES: dict[str, dict[str, Any]] = _DATA["languages"]
LANGUAGES = {end: name for name, about in _LANGUAGES.items() for end in about.get("suffixes", ())}
"""suffix → language"""
NAMES = {file: name for name, about in _LANGUAGES.items() for file in about.get("names", ())}
"""file name → language, for names that say more than their ending"""

# For all languages; those of one alone stand in languages.toml.
_ANY = r"""[ \t]*
    (?:(?:export|default|declare|public|private|protected|internal|fileprivate|static|final
        |abstract|sealed|async|unsafe|const|inline|virtual|override|open|data|case|partial|readonly
        |local|implicit|suspend|mutating|pub(?:\([\w: ]+\))?|extern(?:[ ]"C")?)[ \t]+)*
    (?P<word>class|def|function|fn|func|fun|interface|struct|enum|trait|module|namespace|object
        |protocol|extension|record|type|mod|union|sub|proc|macro|contract|actor|package|subroutine
        |program|input|message|service|rpc|schema)
    (?:[ \t]+|\*[ \t]*)(?:\([^()]*\)[ \t]*|<[^<>]*>[ \t]*)?  # Go's receiver, Kotlin's <T>
    (?P<name>[^\W\d][\w$?!]*(?:(?:::|\.)[\w$?!]+)*)
    (?![ \t]*<[^<>]*>\.)
    # What follows must be code: a docstring may have a line that begins with "class of…".
    (?=[ \t]*(?:[({\[<:=;,|\\]|//|\#|$|(?:extends|implements|with|where|for|is|as|do|returns)\b))"""
_NO_CALL = frozenset(
    (
        *("assert", "await", "case", "catch", "co_return", "constructor_call", "defer", "delete"),
        *("do", "echo", "elif", "else", "elseif", "for", "foreach", "goto", "if", "import", "lock"),
        *("new", "print", "return", "sizeof", "super", "switch", "synchronized", "throw", "try"),
        *("typedef", "unless", "until", "using", "when", "while", "with", "yield"),
    )
)
# No one writes a definition's first line so long; a minified file is one such line.
_LONGEST_LINE = 300


def read_code(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    text = cut_licence(text)
    name = PurePosixPath(path).name
    language = NAMES.get(name) or LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")
    return Document(
        text=text,
        kind="code",
        title=name,
        metadata={"language": language},
        headings=tuple(_find_definitions(text, language)),
        warnings=warnings,
    )


@cache
def _patterns(language: str) -> tuple[re.Pattern[str], ...]:
    own = _LANGUAGES.get(language, {}).get("patterns", ())
    own = _DATA["shared"][own] if isinstance(own, str) else own
    return (re.compile(_ANY, re.VERBOSE), *map(re.compile, own))


def _find_definitions(text: str, language: str) -> Iterator[tuple[int, int, str]]:
    """Level by indentation: a definition lies in the nearest one above that is less indented."""
    patterns = _patterns(language)
    open_: list[tuple[int, str]] = []
    offset = 0
    for line in text.split("\n"):
        words = _read_definition(line, patterns) if line and len(line) <= _LONGEST_LINE else None
        if words:
            bare = line.lstrip()
            indent = len(line[: len(line) - len(bare)].expandtabs(4))
            while open_ and open_[-1][0] > indent:
                open_.pop()
            again = bool(open_) and open_[-1] == (indent, words)  # one more clause of the same
            if open_ and open_[-1][0] == indent:
                open_.pop()
            open_.append((indent, words))
            if not again:
                yield offset + len(line) - len(bare), len(open_), words
        offset += len(line) + 1


def _read_definition(line: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    for pattern in patterns:
        if found := pattern.match(line):
            named = found.groupdict()
            if call := named.get("call"):
                first = line.split(maxsplit=1)[0].split("(")[0]
                if call not in _NO_CALL and first not in _NO_CALL:
                    return f"{call}()"
            else:
                name = (named.get("name") or "").replace('"', "").strip()
                if words := f"{named.get('word') or ''} {name}".strip():
                    return words
    return None


# ---------------------------------------------------------------- licence headers

_BLOCKS = re.compile(
    r"""/\*.*?\*/ | <!--.*?--> | \(\*.*?\*\) | \{-.*?-\} | --\[\[.*?\]\]
    | (?P<mark>//+|\#+(?!!)|--+|;+|%+|!+|::|[Rr][Ee][Mm]\b)[^\n]*
      (?:\n[ \t]*(?P=mark)[^\n]*)*""",
    re.DOTALL | re.VERBOSE,
)
_PREAMBLE = re.compile(r"(?:\s+|#!.*|<\?.*|<!DOCTYPE.*)*", re.IGNORECASE)
_FIRST_BLOCKS = 4
"""Comments at the top that are looked at: marks for tools may come before the licence."""
_IS_LICENCE = re.compile(
    r"""copyright[\s:]*(?:\(?c\)|©|\d{4}|.{0,60}?\b(?:19|20)\d\d) | spdx-license-identifier
    | licen[cs]ed\s(?:under|to)\b | all\srights\sreserved | permission\sis\shereby\sgranted
    | is\sfree\ssoftware | redistribution\sand\suse\sin\ssource | subject\sto\sthe\sterms\sof
    | governed\sby\san?\s[^.]{0,30}licen[cs]e""",
    re.IGNORECASE | re.VERBOSE,
)
_OF_LICENCE = re.compile(
    r"""copyright | \(c\) | © | licen[cs]e | spdx | all\srights\sreserved | permission\sis
    | as\sis\b | redistribut | warrant | free\ssoftware | applicable\slaw | no\sevent
    | software\sfoundation | source\scode\sform | copy\sof\sthe
    | in\sthe\shope\sthat | provided\sby""",
    re.IGNORECASE | re.VERBOSE,
)
_PARAGRAPH = re.compile(r"(?:^.*\w.*(?:\n|\Z))+", re.MULTILINE)


def cut_licence(code: str) -> str:
    """A source file without the licence in the comments at its top. What else they say stays."""
    spans: list[Span] = []
    at = 0
    for _ in range(_FIRST_BLOCKS):
        at = preamble.end() if (preamble := _PREAMBLE.match(code, at)) else at
        block = _BLOCKS.match(code, at)
        if block is None:
            break
        if _IS_LICENCE.search(re.sub(r"\s+[^\w\s]*\s*", " ", block[0])):
            found = list(_find_licence(block[0]))
            if not re.search(r"\w", cut_spans(block[0], found)):
                found = [(0, len(block[0]), "")]
            spans += ((at + start, at + end, words) for start, end, words in found)
        at = block.end()
    return cut_spans(code, spans)


def _find_licence(comment: str) -> Iterator[Span]:
    """Spans from the first line of a paragraph that speaks of it to the end of that one."""
    for paragraph in _PARAGRAPH.finditer(comment):
        at = paragraph.start()
        for line in paragraph[0].split("\n"):
            if _OF_LICENCE.search(line):
                yield at, paragraph.end(), ""
                break
            at += len(line) + 1
