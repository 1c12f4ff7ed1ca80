"""Markdown: front matter, headings, tags and links. The text itself is kept as it is, but for
comments and the tags of site generators: none of those is indexed, embedded or shown. Line breaks
stay, and with them the number of every line."""

from __future__ import annotations

import datetime as dt
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from clew.filter import PERSONAL, domain_of
from clew.ingest.readers.text import (
    Span,
    cut_spans,
    decode,
    fold_tags,
    local_target,
    title_from,
    unique,
)
from clew.types import Document

_OPENS = re.compile(r"(?:[ \t]*\n)?(---|\+\+\+)[ \t]*\n")
_CLOSES = {
    "---": re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE),
    "+++": re.compile(r"^\+\+\+[ \t]*(?:\n|\Z)", re.MULTILINE),
}
_TAG_FIELD = re.compile(r"^tags?[ \t]*:.*(?:\n[ \t]*-.*)*", re.MULTILINE)
_HASHED_DOMAIN = re.compile(
    r"^(domains?[ \t]*:(?:[ \t]*\n[ \t]*-)?[ \t]*)#(?=[^\W\d_])", re.MULTILINE | re.IGNORECASE
)
# With what is indented below it.
_DOMAIN = re.compile(
    r"""^["']?domains?[ \t]*["']?[ \t]*[:=](.*(?:\n(?:[ \t]+|-[ \t]).*)*)""",
    re.MULTILINE | re.IGNORECASE,
)
_MARGIN = re.compile(r"^[ \t]+", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|[ \t])#[ \t].*", re.MULTILINE)
_KEY = re.compile(r"^[\w-]+[ \t]*[:=]", re.MULTILINE)
_PLAIN_FIELD = re.compile(r"^([\w-]+)[ \t]*[:=][ \t]+([^\s\[{&*!|>#].*)", re.MULTILINE)
_HASH = re.compile(r"(?<=[\s,\[])#(?=[^\W\d_])")
_ITEM_HASH = re.compile(r"(?<=-)([ \t]+)#(?=[^\W\d_])")
_TAG_CLOSES = {"<!--": "-->", "{{<": ">}}", "{{%": "%}}", "{%": "%}", "{#": "#}", "{/*": "*/}"}
TAG_OPENS = r"<!--|\{\{[<%]|\{%(?=[-+\s]|\w)|\{#(?=[-\s])|\{/\*"
"""How comments (HTML, Jinja, MDX) and tags (Hugo, Jinja, Liquid) begin; `{#id}` is an anchor."""
_COMMENT_OPENS = ("<!--", "{#", "{/*")
_LONGEST_TAG = 2_000
_LONGEST_MARGIN = 20
_TAG_NAME = re.compile(r"[-+\s]*([\w./-]*)")
# Parameters that are words to be read; the others are for machines.
_TAG_WORDS = re.compile(
    r"\b(?:title|text|name|caption|alt|label|description|summary|content)\s*=\s*"
    r"""(?:"([^"]*)"|'([^']*)')"""
)
_HEADING_MARK = re.compile(r"^ {0,3}#{1,6}[ \t]+\Z", re.MULTILINE)
_ARGUMENT = re.compile(r"""(?<![=\w])(?:"([^"]*)"|'([^']*)')""")
_END_COMMENT = re.compile(r"\{(?:\{[<%]|%)[-+\s]*(?:/\s*|end)comment[^}]*\}\}?")

# A few lines of YAML can stand for billions of values (aliases of aliases), and some thousand
# brackets overrun the stack of its parser.
_MOST_VALUES = 10_000
_DEEPEST = 50
_LONGEST_FRONT_MATTER = 200_000
_TOO_MUCH = "it holds too many values, or refers to itself"
# A block begins after spaces and the marks of those around it.
_DEEP = re.compile(rf"^(?:[ \t]|[-?:](?=[ \t])){{{_DEEPEST // 2},}}", re.MULTILINE)
# A longer "heading" is a paragraph with a rule drawn under it.
_LONGEST_HEADING = 200

_WIDEST_MARGIN = 60
"""Spaces and quote marks before a fence."""
# Without groups, so that `search` goes from one first letter to the next.
_MARK = re.compile(rf"``*|~~~+|{TAG_OPENS}|%%|\^|!\[\[")
# Obsidian's: the end of a comment over several lines, the name of a block, a file that is shown.
_COMMENT_ENDS = re.compile(r"%%[ \t]*$", re.MULTILINE)
_BLOCK_NAME = re.compile(r"\^(?=[\d-]*[A-Za-z])[A-Za-z\d][A-Za-z\d-]+[ \t]*$", re.MULTILINE)
_EMBEDDED = re.compile(
    r"!\[\[[^\[\]|#\n]{1,400}\."
    r"(?:png|jpe?g|gif|svg|webp|bmp|avif|heic|tiff?|mp3|wav|m4a|ogg|flac|mp4|mov|mkv|webm|ogv|pdf)"
    r"[ \t]*\\?(?:#[^\[\]|\n]{0,400})?(?:\|([^\[\]\n]{0,400}))?\]\]",
    re.IGNORECASE,
)
_LAYOUT = re.compile(r"\s*(?:\d*(?:x\d+)?|left|right|center)\s*\\?")
_EMPTY_HEADING = re.compile(r" {0,3}#{1,6}[ \t]*#*[ \t]*")
_ATX = re.compile(r" {0,3}(#{1,6})(?=\s|$)")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_NOT_A_PARAGRAPH = re.compile(
    r"\s*(?:[>|]|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$)|(?:[-*_][ \t]*){3,}$)|(?: {4}|\t)"
)
_TICKS = re.compile(r"^[ \t>]*(?:~{3,}|`{3,}[^`\n]*$)|(`+)|\n[ \t]*\n", re.MULTILINE)
_TAG = re.compile(r"(?<![^\s(,;])(?<!\]\()#([^\W\d_][^\s#(),;]*)")
_NO_TAGS_IN = re.compile(r"://\S+|<[A-Za-z/][^<>\n]*>")
_WIKI = re.compile(r"\[\[([^\[\]|#\n]*)(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_INLINE = re.compile(r"\]\([ \t]*(<[^<>\n]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)")
_REFERENCE = re.compile(r"^ {0,3}\[(?!\^)[^\]\n]+\]:[ \t]*(\S+).*$", re.MULTILINE)
_LINK_WORDS = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|!?\[([^\[\]]*)\]\([^()]*\)")
_EMPHASIS = re.compile(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}|`+|\s*\{#[^{}]*\}$")


def read_markdown(data: bytes, path: str) -> Document:
    text, warnings = decode(data)
    fields, body, trouble = read_front_matter(text)
    if trouble:
        warnings = (*warnings, trouble)
    marks = list(_find_marks(text, body))
    # Of a file that is shown the words are read, but what it leads to is a link.
    linking = _blank(text, [(0, body), *(span[:2] for kind, span in marks if kind != "file")])
    if tags := [span for kind, span in marks if kind in ("tag", "file")]:
        text = _cut_empty_headings(cut_spans(text, tags), text, tags)
        marks = list(_find_marks(text, body))
    blocks = _blank(text, [(0, body), *(span[:2] for kind, span in marks if kind == "fence")])
    headings = tuple(_find_headings(text, blocks, body))
    prose = _blank(blocks, (span[:2] for kind, span in marks if kind == "ticks"))
    title = fields.pop("title", None)
    if not isinstance(title, (str, int, float)) or not str(title).strip():
        title = next((words for _, level, words in headings if level == 1), title_from(path))
    tagged = (*fold_tags(fields.pop("tags", ())), *fold_tags(fields.pop("tag", ())))
    return Document(
        text=text,
        kind="markdown",
        title=str(title).strip(),
        tags=unique((*tagged, *_find_tags(prose, [offset for offset, _, _ in headings]))),
        links=unique(_find_links(linking)),
        metadata=fields,
        body=body,
        headings=headings,
        warnings=warnings,
    )


# ---------------------------------------------------------------- front matter


def read_front_matter(text: str) -> tuple[dict[str, Any], int, str | None]:
    """The fields of the front matter, where it ends, and what is wrong with it."""
    opens = _OPENS.match(text)
    closes = _CLOSES[opens[1]].search(text, opens.end()) if opens else None
    if opens is None or closes is None:
        return {}, 0, None
    source = text[opens.end() : closes.start()]
    try:
        if len(source) > _LONGEST_FRONT_MATTER:
            raise ValueError(f"it is longer than {_LONGEST_FRONT_MATTER} characters")
        given = tomllib.loads(source) if opens[1] == "+++" else _parse_yaml(source)
        if given is not None and not isinstance(given, dict):
            return _mark_personal({}, source), 0, None  # words between two rules
        fields = _json_safe(given or {}, [_MOST_VALUES], _DEEPEST)
        # Of a key that is given twice a parser keeps the last one.
        twice = len(_DOMAIN.findall(source)) > 1
        return _mark_personal(fields, source) if twice else fields, closes.end(), None
    except Exception as error:  # whatever is wrong up there, the text below is still worth finding
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1 + text.count(chr(10), 0, opens.end())})" if mark else ""
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        if not _KEY.search(source):
            said = f"front matter could not be read and counts as text{where}: {problem}"
            return _mark_personal({}, _MARGIN.sub("", source)), 0, said
        # `title: Keel bolts: torque` is no YAML, but clear enough.
        fields = {key: value.strip().strip("\"'") for key, value in _PLAIN_FIELD.findall(source)}
        said = f"front matter could be read only in part{where}: {problem}"
        return _mark_personal(fields, source), closes.end(), said


def _mark_personal(fields: dict[str, Any], source: str) -> dict[str, Any]:
    """The fields, with the personal domain where the source says it, though no parser did."""
    said = [_COMMENT.sub("", words) for words in _DOMAIN.findall(source)]
    return {**fields, "domain": PERSONAL} if domain_of(said) == PERSONAL else fields


def _parse_yaml(source: str) -> Any:
    import yaml

    plain = _HASHED_DOMAIN.sub(r"\1", _TAG_FIELD.sub(_cut_hashes, source))
    loader = _yaml_loader()
    if _DEEP.search(plain) or plain.count("[") + plain.count("{") > _DEEPEST:
        depth = 0
        for event in yaml.parse(plain, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise ValueError(_TOO_MUCH)
    return yaml.load(plain, Loader=loader)


@cache
def _yaml_loader() -> Any:
    import yaml

    # The parser in C is far faster; some builds of PyYAML lack it.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        """Counts what merge keys (`<<: [*a, *a]`) bring in: each can double what the last gave."""

        brought = 0

        def flatten_mapping(self, node: Any) -> None:
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    some = value.value if isinstance(value, yaml.SequenceNode) else [value]
                    for each in some:
                        if isinstance(each, yaml.MappingNode):
                            self.flatten_mapping(each)
                            self.brought += len(each.value) + 1
                        if self.brought > _MOST_VALUES:
                            raise ValueError(_TOO_MUCH)
            super().flatten_mapping(node)

    return Loader


def _cut_hashes(field: re.Match[str]) -> str:
    """`tags: #a #b` as it is meant: to YAML those are a comment."""
    head, *items = field[0].split("\n")
    inside, bracket, rest = head.partition("]")
    return "\n".join(
        (
            _HASH.sub("", inside) + bracket + rest,
            *(_ITEM_HASH.sub(r"\1", item, count=1) for item in items),
        )
    )


def _json_safe(value: Any, left: list[int], depth: int) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise ValueError(_TOO_MUCH)
    if isinstance(value, dict):
        return {str(key): _json_safe(v, left, depth - 1) for key, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_json_safe(v, left, depth - 1) for v in value]
    if isinstance(value, (dt.date, dt.datetime, dt.time)):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    # A store keeps whole numbers in 64 bits.
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    return value if value is None or isinstance(value, (str, bool)) else str(value)


# ---------------------------------------------------------------- what is not prose


def _blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with spans turned to spaces, so that offsets and lines stay what they were."""
    parts: list[str] = []
    at = 0
    for start, end in spans:
        parts += (text[at:start], re.sub(r"[^\n]", " ", text[start:end]))
        at = end
    return "".join((*parts, text[at:]))


def _find_marks(text: str, at: int) -> Iterator[tuple[str, Span]]:
    """What is no prose, from left to right. fence: code in a block; ticks: in a line; tag: a
    comment, or for a site generator; file: one that is shown there."""
    ticks = _pair_ticks(text) if "`" in text else {}
    unclosed: set[str] = set()
    while mark := _MARK.search(text, at):
        start, at = mark.span()
        run = mark[0]
        if len(run) >= 3 and run[0] in "`~" and (line := _fence(text, start, at)) is not None:
            closes = re.compile(rf"^[ \t>]*{run[0]}{{{len(run)},}}[ \t]*$", re.MULTILINE)
            found = closes.search(text, at)
            at = found.end() if found else len(text)
            yield "fence", (line, at, "")
        elif run[0] == "`" and start in ticks:
            at = ticks[start]
            yield "ticks", (start, at, "")
        elif run[0] in "%^":
            if (end := _note_ends(text, mark, unclosed)) is not None:
                at = end
                yield "tag", (start, at, "")
        elif run[0] == "!":
            if shown := _EMBEDDED.match(text, start):
                at = shown.end()
                named = [w for w in (shown[1] or "").split("|") if not _LAYOUT.fullmatch(w)]
                yield "file", (start, at, " ".join(named))
        elif run[0] not in "`~" and (tag := find_tag(text, mark, unclosed)):
            at = tag[1]
            yield "tag", tag


def find_tag(text: str, opened: re.Match[str], unclosed: set[str]) -> Span | None:
    """The comment or the tag that begins here; None: it is not closed, so it is text. `unclosed`
    are those of which no end is left: nothing is looked for in vain again and again."""
    opening, start = opened[0], opened.start()
    comment = opening in _COMMENT_OPENS
    limit = len(text) if comment else start + _LONGEST_TAG
    close = -1 if opening in unclosed else text.find(_TAG_CLOSES[opening], opened.end(), limit)
    if close < 0:
        unclosed |= {opening} if comment else set()
        return None
    end = close + len(_TAG_CLOSES[opening])
    if comment:
        return start, end, ""
    inside = text[opened.end() : close]
    if re.search(r"\n[ \t]*\n", inside):
        return None
    named = _TAG_NAME.match(inside)
    if named and named[1] == "comment" and "comment" not in unclosed:
        if ends := _END_COMMENT.search(text, end):
            return start, ends.end(), ""
        unclosed.add("comment")
    said = _TAG_WORDS.findall(inside)
    if not said and _HEADING_MARK.search(text[max(0, start - _LONGEST_MARGIN) : start]):
        said = _ARGUMENT.findall(inside)  # it is all that the heading has
    return start, end, " ".join(double or single for double, single in said)


def _note_ends(text: str, mark: re.Match[str], unclosed: set[str]) -> int | None:
    """Where a comment or a block's name that begins here ends; None: it is text, as in `100%%`."""
    start, at = mark.span()
    before = text[start - 1 : start] or "\n"
    if mark[0] == "^":
        name = _BLOCK_NAME.match(text, start) if before.isspace() else None
        return name.end() if name else None
    if before == "%" or before.isalnum():
        return None
    stop = text.find("\n", at)
    if (close := text.find("%%", at, stop if stop >= 0 else len(text))) >= 0:
        return close + 2
    if before != "\n" or "%%" in unclosed:
        return None
    ends = _COMMENT_ENDS.search(text, at)
    unclosed |= {"%%"} if ends is None else set()
    return ends.end() if ends else None


def _cut_empty_headings(text: str, source: str, tags: Iterable[tuple[int, int, str]]) -> str:
    """The text less the headings of which nothing was left. It has the lines of its source."""
    lines, number, at = text.split("\n"), 0, 0
    for start, end, _ in tags:
        number, at = number + source.count("\n", at, start), start
        for n in (number, number + source.count("\n", start, end)):
            lines[n] = "" if _EMPTY_HEADING.fullmatch(lines[n]) else lines[n]
    return "\n".join(lines)


def _fence(text: str, start: int, end: int) -> int | None:
    """Where the line begins that opens a block of code with this run; None: it does not."""
    near = max(0, start - _WIDEST_MARGIN)
    line = text.rfind("\n", near, start) + 1
    if (near and not line) or text[line:start].strip(" \t>"):
        return None
    stop = text.find("\n", end)
    info = text[end : stop if stop >= 0 else len(text)]
    return None if text[start] == "`" and "`" in info else line


def _pair_ticks(text: str) -> dict[int, int]:
    """`…` and ``…``: where each begins and ends, a run of ticks up to the next one of its length in
    the same paragraph."""
    pairs: dict[int, int] = {}
    last: dict[int, re.Match[str]] = {}
    for run in reversed(list(_TICKS.finditer(text))):
        if run[1] is None:  # the end of a paragraph
            last.clear()
            continue
        if (close := last.get(len(run[1]))) is not None:
            pairs[run.start()] = close.end()
        last[len(run[1])] = run
    return pairs


# ---------------------------------------------------------------- headings, tags, links


def _find_headings(text: str, blocks: str, body: int) -> Iterator[tuple[int, int, str]]:
    offset = body
    paragraph: int | None = None
    closed = False  # in a list, a quote or a table a rule is never an underline
    for line in blocks[body:].split("\n"):
        start = offset + len(line) - len(line.lstrip())
        if not line.strip():
            paragraph, closed = None, False
        elif atx := _ATX.match(line):
            if words := _words(text[offset + atx.end() : offset + len(line)], atx=True):
                yield start, len(atx[1]), words
            paragraph, closed = None, False
        elif paragraph is not None and (rule := _SETEXT.match(line)):
            if offset - paragraph <= _LONGEST_HEADING:
                yield paragraph, 1 if rule[1][0] == "=" else 2, _words(text[paragraph:offset])
            paragraph = None
        elif paragraph is None and _NOT_A_PARAGRAPH.match(line):
            closed = True
        elif paragraph is None and not closed:
            paragraph = start
        elif _NOT_A_PARAGRAPH.match(line.lstrip()):
            paragraph, closed = None, True
        offset += len(line) + 1


def _words(source: str, *, atx: bool = False) -> str:
    words = " ".join(source[: 2 * _LONGEST_HEADING].split())
    if atx:
        bare = words.rstrip("#")
        words = bare.rstrip() if not bare or bare[-1] == " " else words
    words = _LINK_WORDS.sub(lambda found: found[1] or found[2] or "", words)
    return _EMPHASIS.sub("", words).strip()[:_LONGEST_HEADING]


def _find_tags(prose: str, headings: list[int]) -> Iterator[str]:
    spans = [(at, end if (end := prose.find("\n", at)) >= 0 else len(prose)) for at in headings]
    words = _REFERENCE.sub("", _NO_TAGS_IN.sub(" ", _blank(prose, spans)))
    for found in _TAG.finditer(words):
        tag = found[1]
        end = next((i for i, char in enumerate(tag) if not _in_tag(char)), len(tag))
        yield from fold_tags([tag[:end].rstrip("-/")])


def _in_tag(char: str) -> bool:
    # Vowel signs and joiners belong to a word in many scripts, though \w knows nothing of them.
    return char.isalnum() or char in "_-/\u200c\u200d" or unicodedata.category(char)[0] == "M"


def _find_links(prose: str) -> Iterator[str]:
    found: list[tuple[int, str | None]] = []
    for wiki in _WIKI.finditer(prose):
        # In a table the bar is written \|.
        found.append((wiki.start(), wiki[1].strip().removesuffix("\\").strip()))
    for pattern in (_INLINE, _REFERENCE):
        for link in pattern.finditer(prose):
            found.append((link.start(), local_target(link[1].strip("<>"))))
    yield from (target for _, target in sorted(found, key=lambda f: f[0]) if target)
