"""Records about topics that share no words, so that a hashing embedder tells them apart."""

from __future__ import annotations

from collections.abc import Iterator

import clew

TOPICS = {
    "boats": "keel mast rudder hull sail anchor tiller jib boom halyard",
    "bread": "flour yeast dough oven crust crumb sourdough rye loaf starter",
    "trees": "oak birch maple root bark leaf trunk forest sapling acorn",
    "music": "violin cello tempo chord melody bow sonata rhythm octave scale",
    "bikes": "pedal chain spoke saddle gear brake frame wheel derailleur tube",
    "stars": "nebula comet orbit planet galaxy quasar eclipse meteor lunar solar",
}


def text(topic: str, number: int) -> str:
    words = TOPICS[topic].split()
    return " ".join(words[(number * step + step) % len(words)] for step in range(1, 9))


def records(count: int, **fields: object) -> Iterator[clew.Record]:
    """`count` of each topic."""
    for topic in TOPICS:
        for number in range(count):
            name = f"{topic}-{number:03}"
            title = f"{topic} number {number}"
            yield clew.Record(id=name, title=title, content=text(topic, number), **fields)  # type: ignore[arg-type]
