"""Promises about memory, each as one figure, through public names only.

    python benchmarks/promises_memory.py

Sentences are those of tests/statements.py, written by hand, with the default model. `TYPICAL` are
22 sentences of 7 facts, `FACTS` more of that kind: both were known when the licences of
text/paraphrase.py were chosen. `UNSEEN` were written afterwards. Wrong merges are counted among
pairs that differ in one thing (`APART`, and those of tests/text/test_same_fact.py), and among all
pairs of two facts.

How fast a memory is beside the engine is another command, which takes longer:

    python benchmarks/memory.py --engine
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clew

from report import REPOSITORY, Table, options, publish

sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "text")]

from statements import APART, FACTS, TYPICAL, UNSEEN  # noqa: E402, I001
from test_same_fact import APART as FORMS  # noqa: E402

__all__: list[str] = []

TRUE = ("other words", 2)
"""The kind of pair, and how many of its first, that say the same though same_fact cannot know."""
ODD = ("\ud800", "\0", "keel \udfff", "\x1f", "!!!", '"\ud800" -\udfff')


def merged(memory: clew.Memory, sentences: Iterable[str]) -> dict[str, str]:
    """What stands for each of these after they were consolidated."""
    space = f"s{time.perf_counter_ns()}"
    texts = list(dict.fromkeys(sentences))
    memory.remember_many({"content": text, "namespace": space} for text in texts)
    stands = {text: text for text in texts}
    for group in memory.consolidate(space):
        stands |= {other["content"]: group["content"] for other in group["ended"]}
    return stands


def facts(memory: clew.Memory, name: str, rows: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    stands = merged(memory, (sentence for row in rows for sentence in row))
    pairs = [pair for row in rows for pair in combinations(row, 2)]
    found = sum(stands[one] == stands[other] for one, other in pairs)
    of = [(number, sentence) for number, row in enumerate(rows) for sentence in row]
    wrong = sum(
        number != other and stands[one] == stands[text]
        for (number, one), (other, text) in combinations(of, 2)
    )
    left = len(set(stands.values()))
    return [
        (f"{name}: sentences left, of {len(stands)} of {len(rows)} facts", f"{left}"),
        (
            f"{name}: paraphrases found, of {len(pairs)} pairs",
            f"{found} ({found / len(pairs):.0%})",
        ),
        (f"{name}: pairs of two facts made one", f"{wrong}"),
    ]


def apart(memory: clew.Memory) -> list[tuple[str, str]]:
    kind, first = TRUE
    old = [p for name, some in FORMS.items() for p in some[first if name == kind else 0 :] if p[0]]
    pairs = [*APART, *old]
    stands = merged(memory, (text for pair in pairs for text in pair))
    wrong = [pair for pair in pairs if stands[pair[0]] == stands[pair[1]]]
    return [(f"wrong merges, of {len(pairs)} pairs that differ in one thing", f"{len(wrong)}")]


def variety(memory: clew.Memory) -> list[tuple[str, str]]:
    """How many of the first five say the same, where the query is about one fact."""
    others = [row[0] for row in FACTS[3:30]]
    counts = []
    for row, query in (
        ([*TYPICAL[0], *FACTS[0]], "which mode does the user prefer?"),
        ([*TYPICAL[1], *FACTS[1]], "what is the user allergic to?"),
        ([*TYPICAL[2], *FACTS[2]], "where does the user live?"),
    ):
        space = f"v{time.perf_counter_ns()}"
        memory.remember_many({"content": text, "namespace": space} for text in (*row, *others))
        found = memory.recall(query, k=5, mmr=0.5, namespace=space)
        counts.append(sum(memory.content in row for memory in found))
    return [("paraphrases of one fact among the first 5 with mmr=0.5", ", ".join(map(str, counts)))]


def tried(check: Callable[[], Any]) -> str:
    """What came of it, or which error."""
    try:
        return str(check())
    except Exception as error:
        return f"{type(error).__name__}"


def identity(memory: clew.Memory) -> list[tuple[str, str]]:
    memory.remember("the profile of ana", id="profile", namespace="ana")

    def stays() -> bool:
        memory.import_json([{"id": "profile", "namespace": "ben", "content": "another"}])
        kept = memory.get("profile", namespace="ana")
        return kept is not None and kept.content == "the profile of ana"

    return [("an import of the same id leaves another namespace alone", tried(stays))]


def characters(memory: clew.Memory) -> list[tuple[str, str]]:
    calls = (memory.recall, memory.hybrid_search, memory.context_pack, memory.fts_search)
    failed = 0
    for call in calls:
        for query in ODD:
            try:
                call(query)
            except clew.ClewError:
                pass
            except Exception:
                failed += 1
    return [(f"calls with odd characters that fail, of {len(calls) * len(ODD)}", f"{failed}")]


def validity(memory: clew.Memory) -> list[tuple[str, str]]:
    """A change heard of later, and a fact of the past brought in."""
    space = f"t{time.perf_counter_ns()}"

    def told(**fields: Any) -> str:
        return memory.remember("Ana lives in Faro", namespace=space, created_at=100.0, **fields).id

    def right() -> str:
        old = told()
        memory.supersede(old, "Ana lives in Porto", valid_from=300.0, namespace=space)
        memory.import_json(
            [{"content": "Ana lives in Lagos", "valid_from": 10.0, "valid_to": 20.0,
              "namespace": space}]
        )  # fmt: skip
        wanted = ((15.0, "Lagos"), (50.0, ""), (200.0, "Faro"), (300.0, "Porto"), (1e9, "Porto"))
        good = 0
        for moment, place in wanted:
            found = memory.recall("Ana lives", as_of=moment, namespace=space)
            good += [m.content.split()[-1] for m in found] == ([place] if place else [])
        return f"{good} of {len(wanted)}"

    return [("moments at which as_of finds what was true", tried(right))]


def main() -> None:
    arguments = options(__doc__, data=False).parse_args()
    with (
        TemporaryDirectory(dir=arguments.work) as work,
        clew.Memory(Path(work) / "memory.db") as memory,
    ):
        rows = [
            *identity(memory),
            *characters(memory),
            *validity(memory),
            *facts(memory, "typical", TYPICAL),
            *facts(memory, "known", FACTS),
            *facts(memory, "unseen", UNSEEN),
            *apart(memory),
            *variety(memory),
        ]
    table = Table("Promises", ("figure", "measured"), rows)
    publish("Memory", __doc__, [table], {"figures": dict(rows)}, arguments)


if __name__ == "__main__":
    main()
