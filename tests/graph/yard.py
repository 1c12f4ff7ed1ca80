"""Four pages of a boat yard, whose graph can be read off them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clew import Engine

Opened = Callable[..., Engine]


def page(name: str, title: str, content: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"notes:{name}.md",
        "title": title,
        "content": content,
        "path": f"{name}.md",
        "type": "markdown",
        **fields,
    }


def built(engine: Engine, pages: list[dict[str, object]]) -> Engine:
    engine.add(pages)
    engine.graph.build()
    return engine


YARD = [
    page(
        "crane",
        "Harbour crane",
        "The crane lifts boats of up to nine tonnes. It is looked after by [[greta|Greta]].",
        links=("greta",),
    ),
    page(
        "greta",
        "Greta Oltmanns",
        "Boat builder. Her licence has the number KR-5582 and runs out in autumn.",
        metadata={"aliases": ["the boatwright"]},
    ),
    page(
        "roaster",
        "Drum roaster",
        "The roaster came with the building. Its licence for gas is renewed each spring.",
    ),
    page(
        "blend",
        "Harbour blend",
        "Beans from the roaster, see [the machine](roaster.md). It is sold in spring.",
        links=("roaster.md",),
    ),
]
"""Which licence belongs to the crane is to be found by way of its page only."""
