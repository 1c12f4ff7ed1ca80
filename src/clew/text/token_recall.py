"""Token recall: how much of a query's words a text has. The plain scorer of conversation memory.

Its tokens are not the analyser's (analyser.py): no stemming, no folding of accents, no compounds.
It is meant to be exact, for names and short queries, beside vectors that are not.
"""

from __future__ import annotations

import re

from clew.text.analyser import STOPWORDS

LEAST_RECALL = 0.33
"""One word of three: below it, a text is not about the query."""

_CJK = (
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han, and extension A
    "\U00020000-\U000323af"  # extensions B to H
)
_TOKEN = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")


def record_tokens(text: str) -> frozenset[str]:
    """Runs of word characters in lower case; of Chinese, Japanese and Korean each character."""
    return frozenset(_TOKEN.findall(text.lower()))


def query_tokens(text: str) -> frozenset[str]:
    """The same without stopwords and single letters, which every text has."""
    return frozenset(
        token
        for token in _TOKEN.findall(text.lower())
        if token not in STOPWORDS
        and (len(token) > 1 or token.isdigit() or re.match(f"[{_CJK}]", token))
    )


def token_recall(query: frozenset[str], record: frozenset[str]) -> float:
    """|query ∩ record| / |query|; 0 for a query without words."""
    return len(query & record) / len(query) if query else 0.0
