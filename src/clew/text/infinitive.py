"""The verb of an activity: hiking is to hike, running to run.

A stem would not do here: those of author and authorize are one, as are those of hop and hope. So
only the ending is undone, by the rules of English spelling, and a verb in the infinitive is what it
is. Where a rule is wrong two ways of saying something are not known to be one.
"""

from __future__ import annotations

import re

__all__ = ["infinitive"]

_DOING = re.compile(r"([a-z]{2,})ing")
_DOUBLED = re.compile(r".*[aeiou]([bdgmnprt])\1")
_IE = {"dy": "die", "ly": "lie", "ty": "tie"}
_AS_IS = frozenset(["add", "focus", "visit", "edit", "exit", "put", "bus"])
_DROPPED_E = re.compile(
    r"[^aeiou]*(?:qu)?[aeiouy][^aeiouwxy]"  # hik, bak, us: a short one would have been doubled
    r"|.*(?:[cuvz]|[bcdfgkptz]l)"  # danc, argu, driv, organiz, juggl
    r"|.*[aeiouy].*(?:[^aeo]at|[^o]ut|[^aeiou](?:ar|ir|in|id|ad|od|ud|ok|om)|ur)"  # imagin
    r"|.*(?:[aeiou]s|[nrw]s|[dr]g|[^aeiou]ag|chang|arrang|challeng)"  # brows, nurs, judg, manag
    r"|creat|complet|delet|compet|invit|rewrit|promot|quot|explor|ignor|restor|escap|breath|bath"
    r"|recit|renam"
)


def infinitive(doing: str) -> str:
    """Of a word in -ing, in lower case; "" where it is no activity: nobody does a spring."""
    if not (found := _DOING.fullmatch(doing)):
        return ""
    stem = found[1]
    if not re.search("[aeiouy]", stem):
        return ""
    if stem in _IE:
        return _IE[stem]
    if stem in _AS_IS:
        return stem
    if _DOUBLED.fullmatch(stem):
        return stem[:-1]
    return stem + "e" if _DROPPED_E.fullmatch(stem) else stem
