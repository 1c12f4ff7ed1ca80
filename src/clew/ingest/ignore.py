"""The rules of .gitignore and .clewignore, decided one folder entry at a time.

pathspec's GitIgnoreSpec answers for whole paths: it calls the folder `a` ignored under `a/**`,
so a walk that does not go into ignored folders would lose `!a/keep.txt`, which git keeps. Here a
pattern is matched against the entry alone, as git does it; the tests compare with git itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Rules", "ignored", "parse"]


@dataclass(frozen=True, slots=True)
class _Rule:
    glob: re.Pattern[str]
    by_name: bool
    """A pattern without an inner slash looks at the last part of the path, at any depth."""
    folders_only: bool
    ignores: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns that lie in one folder, the last (which wins) first."""

    prefix: str
    """The folder, relative to the root, with a slash at its end; empty for the root."""
    rules: tuple[_Rule, ...]
    names: re.Pattern[str] | None
    paths: re.Pattern[str] | None
    """All globs of a kind in one: most files match none, and one look tells so."""


def ignored(chain: tuple[Rules, ...], path: str, name: str, *, folder: bool) -> bool:
    """Whether an entry is left out; `chain` runs from the deepest folder to the root."""
    for rules in chain:
        inner = path[len(rules.prefix) :]
        if not (
            (rules.names is not None and rules.names.fullmatch(name))
            or (rules.paths is not None and rules.paths.fullmatch(inner))
        ):
            continue
        for rule in rules.rules:
            if rule.folders_only and not folder:
                continue
            if rule.glob.fullmatch(name if rule.by_name else inner):
                return rule.ignores
    return False


def parse(text: str, *, prefix: str) -> Rules | None:
    """The rules in an ignore file's text; None when it has none."""
    rules = [rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r")))]
    if not rules:
        return None
    return Rules(
        prefix=prefix,
        rules=tuple(reversed(rules)),
        names=_union([rule.glob for rule in rules if rule.by_name]),
        paths=_union([rule.glob for rule in rules if not rule.by_name]),
    )


def _union(globs: list[re.Pattern[str]]) -> re.Pattern[str] | None:
    if not globs:
        return None
    return re.compile("|".join(f"(?:{glob.pattern})" for glob in globs), re.DOTALL)


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    # Trailing spaces do not count, unless a backslash holds on to one.
    pattern = line.rstrip(" ")
    held = len(pattern) - len(pattern.rstrip("\\"))
    if held % 2 and len(pattern) < len(line):
        pattern += " "
    ignores = not pattern.startswith("!")
    pattern = pattern if ignores else pattern[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern[:-1] if folders_only else pattern
    by_name = "/" not in pattern
    pattern = pattern.removeprefix("/")
    expression = _translate(pattern) if pattern else None
    if expression is None:
        return None
    return _Rule(re.compile(expression, re.DOTALL), by_name, folders_only, ignores)


def _translate(pattern: str) -> str | None:
    """A regular expression for a glob; None for one that git holds to match nothing."""
    parts: list[str] = []
    at, end = 0, len(pattern)
    while at < end:
        char = pattern[at]
        if char == "*":
            stop = at
            while stop < end and pattern[stop] == "*":
                stop += 1
            opens = at == 0 or pattern[at - 1] == "/"
            if stop - at >= 2 and opens and stop == end:
                parts.append(".*")
            elif stop - at >= 2 and opens and pattern[stop] == "/":
                parts.append("(?:.*/)?")
                stop += 1
            else:
                parts.append("[^/]*")
            at = stop
        elif char == "?":
            parts.append("[^/]")
            at += 1
        elif char == "[":
            found = _bracket(pattern, at + 1)
            if found is None:
                return None
            expression, at = found
            parts.append(expression)
        elif char == "\\":
            if at + 1 == end:
                return None
            parts.append(re.escape(pattern[at + 1]))
            at += 2
        else:
            parts.append(re.escape(char))
            at += 1
    return "".join(parts)


_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


def _bracket(pattern: str, at: int) -> tuple[str, int] | None:
    """What stands between `[` and `]`, and where it ends; None when it is never closed."""
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    first = True
    while True:
        char = pattern[at : at + 1]
        if not char:
            return None
        if char == "]" and not first:
            break
        first = False
        if char == "[" and pattern[at + 1 : at + 2] == ":":
            close = pattern.find(":]", at + 2)
            if close < 0 or pattern[at + 2 : close] not in _CLASSES:
                return None
            members.append(_CLASSES[pattern[at + 2 : close]])
            at = close + 2
            continue
        low, at = _member(pattern, at)
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(pattern, at + 1)
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    inside = "".join(members)
    if negated:
        return f"[^/{inside}]", at + 1
    return (f"(?!/)[{inside}]" if inside else "(?!)"), at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        at += 1
    return pattern[at], at + 1
