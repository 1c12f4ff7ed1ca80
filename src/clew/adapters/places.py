"""Where an item of a LangGraph store is in a memory: namespaces and keys as names Clew takes.

    ("users", "ana"), "tea/black"   →   namespace langgraph/users/ana
                                        id, path  langgraph/users/ana/tea+2Fblack

The path makes everything below a namespace one range of an index. The root keeps items apart from
what else is remembered in the same file.
"""

from __future__ import annotations

import re
from typing import Any

from langgraph.store.base import InvalidNamespaceError

__all__ = ["below", "key_of", "labels_of", "namespace_of", "place_of"]

ROOT = "langgraph"
_ODD = re.compile(r"[^\w.:@ -]")
"""What a namespace of Clew may not have, the separator, and the sign of an escape."""
_ESCAPED = re.compile(r"(?:\+[0-9A-F]{2})+")


def namespace_of(labels: Any) -> str:
    """The memory's namespace. No two tuples of labels share one."""
    for label in labels:
        if not isinstance(label, str) or not label:
            raise InvalidNamespaceError(
                f"{label!r:.100} in {labels!r:.100} is no label of a namespace: use a text"
            )
    return "/".join((ROOT, *map(_escape, labels)))


def labels_of(namespace: str) -> tuple[str, ...] | None:
    """The way back; None for what is no item's namespace."""
    root, *labels = namespace.split("/")
    return tuple(map(_plain, labels)) if root == ROOT else None


def place_of(labels: Any, key: object) -> str:
    """The record's id, and its path too."""
    return f"{namespace_of(labels)}/{_escape(str(key))}"


def key_of(place: str) -> str:
    return _plain(place.rpartition("/")[2])


def below(labels: Any) -> str:
    """The folder of paths that has everything with this prefix."""
    return namespace_of(labels) + "/"


def _escape(text: str) -> str:
    return _ODD.sub(
        lambda odd: "".join(f"+{byte:02X}" for byte in odd[0].encode("utf-8", "surrogatepass")),
        text,
    )


def _plain(text: str) -> str:
    return _ESCAPED.sub(
        lambda escaped: bytes.fromhex(escaped[0].replace("+", "")).decode("utf-8", "surrogatepass"),
        text,
    )
