"""Odd input by the hundred thousand, without hypothesis: prints counts and findings as JSON.

    python tests/fuzz/run.py --seed 1 --count 500000 [--seconds 600]

Whatever is not a ClewError, or takes longer than PATIENCE, is a finding, with what it was made of.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from odd import ALONE, POOL, SEEDS, TEXTS, TOML, WORDS, attempt, mutate  # noqa: E402

import clew  # noqa: E402
from clew import config  # noqa: E402
from clew.ingest.readers import known_suffixes, read  # noqa: E402
from clew.ingest.readers.markdown import read_front_matter  # noqa: E402
from clew.text.parse import parse  # noqa: E402
from documents import change_part, office, pdf  # noqa: E402

from hashing import HashingEmbedder  # noqa: E402

PATIENCE = 20
"""Seconds for one input, which are all of a few hundred bytes."""
KEPT = 20
Target = Callable[[random.Random, list[Any]], object]
"""Draws an input, notes it in the list, and gives it away."""


def query(rng: random.Random) -> str:
    return " ".join(
        rng.choice(WORDS) if rng.random() < 0.7 else word(rng) for _ in range(rng.randint(0, 8))
    )


def word(rng: random.Random) -> str:
    tops = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)
    return "".join(chr(rng.randint(0, rng.choice(tops))) for _ in range(rng.randint(0, 12)))


def value(rng: random.Random) -> Any:
    """One of the odd ones, or several in a list or under keys."""
    kind = rng.randint(0, 9)
    if kind == 0:
        return [rng.choice(POOL) for _ in range(rng.randint(0, 3))]
    if kind == 1:
        return {rng.choice(TEXTS): rng.choice(POOL) for _ in range(rng.randint(0, 3))}
    if kind == 2:
        return word(rng)
    return rng.choice(POOL) if kind < 8 else rng.uniform(-2, 2) * 10 ** rng.randint(-3, 12)


def with_odd_value(of: Any, rng: random.Random) -> Any:
    if isinstance(of, dict) and of and rng.randint(0, 9):
        key = rng.choice(sorted(of))
        return {**of, key: with_odd_value(of[key], rng)}
    if isinstance(of, list) and of and rng.randint(0, 9):
        at = rng.randrange(len(of))
        return [*of[:at], with_odd_value(of[at], rng), *of[at + 1 :]]
    return rng.choice(POOL)


@contextlib.contextmanager
def targets(place: Path) -> Iterator[dict[str, tuple[int, Target]]]:
    """Each with how many of its inputs there are in a round: more of those that take less time."""
    suffixes, fields = sorted(known_suffixes()), [*clew.Filter.__dataclass_fields__, "a.b", ""]
    names = [setting.name for setting in config.all_settings()]
    with (
        clew.open(place / "store", embedder=HashingEmbedder()) as engine,
        clew.Memory(place / "m.db", embedder=HashingEmbedder()) as memory,
    ):
        engine.add({"id": f"r{i}", "content": f"harbour crane {i}"} for i in range(9))
        memory.remember("Ana is allergic to walnuts", tags=["health"], metadata={"a": [1]})
        whole = memory.export_json()
        whole_files, paper = office(), pdf("First page\nsecond line", "another", title="The report")

        def parse_query(rng: random.Random, given: list[Any]) -> object:
            given += [query(rng), rng.random() < 0.5]
            return parse(given[0], syntax=given[1])

        def make_filter(rng: random.Random, given: list[Any]) -> object:
            some = rng.sample(fields, rng.randint(0, 4))
            given.append({name: rng.choice(POOL) for name in some})
            return clew.Filter.of(given[0])

        def count(rng: random.Random, given: list[Any]) -> object:
            return engine.store.count(make_filter(rng, given))

        def search(rng: random.Random, given: list[Any]) -> object:
            given += [query(rng), rng.choice(["hybrid", "keyword", "vector"])]
            return json.dumps([dict(hit) for hit in engine.search(given[0], mode=given[1])])

        def read_file(rng: random.Random, given: list[Any]) -> object:
            given += [mutate(rng, rng.choice(SEEDS)), f"a{rng.choice(suffixes)}"]
            return read(*given)

        def read_document(rng: random.Random, given: list[Any]) -> object:
            suffix = rng.choice([".pdf", *whole_files])
            if suffix == ".pdf":
                given += [mutate(rng, paper), "a.pdf"]
            else:
                mark = rng.choice(PARTS[suffix])
                with_odd = change_part(whole_files[suffix], mark, lambda part: mutate(rng, part))
                given += [with_odd, f"a{suffix}"]
            return read(*given)

        def front_matter(rng: random.Random, given: list[Any]) -> object:
            given.append(mutate(rng, rng.choice(SEEDS)).decode("utf-8", "replace"))
            return read_front_matter(given[0])

        def settings(rng: random.Random, given: list[Any]) -> object:
            some = rng.sample(names, rng.randint(0, 2))
            given += [mutate(rng, TOML), {name: rng.choice(POOL) for name in some}]
            (place / "clew.toml").write_bytes(given[0])
            return config.load(place, given[1])

        def import_memories(rng: random.Random, given: list[Any]) -> object:
            given.append(with_odd_value(json.loads(json.dumps(whole)), rng))
            return memory.import_json(given[0])

        def call(rng: random.Random, given: list[Any]) -> object:
            given.append(rng.choice([name for name in ALONE if name not in HEAVY]))
            return attempt(ALONE[given[0]], lambda: value(rng), lambda: rng.random() < 0.5, given)

        def remember(rng: random.Random, given: list[Any]) -> object:
            given.append(rng.choice(("remember", "recall", "get", "update", "supersede", "forget")))
            odd = getattr(memory, given[0])
            return attempt(odd, lambda: value(rng), lambda: rng.random() < 0.5, given)

        yield {
            "queries": (250, parse_query),
            "filters": (200, make_filter),
            "front matter": (200, front_matter),
            "files": (250, read_file),
            "documents": (10, read_document),
            "functions": (80, call),
            "settings": (10, settings),
            "counts": (10, count),
            "searches": (10, search),
            "imports": (5, import_memories),
            "memories": (10, remember),
        }


PARTS = {
    ".docx": ("document.xml", "styles.xml", ".rels", "core.xml", "Content_Types"),
    ".pptx": ("slide1.xml", "presentation.xml", ".rels", "Content_Types"),
    ".xlsx": ("sheet1.xml", "workbook.xml", "styles.xml", ".rels", "Content_Types"),
}
HEAVY = ("open", "Memory", "Search", "agentic_search", "run_search")
"""They open a store: tests/fuzz/test_calls.py has those."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    faulthandler.enable()
    counts, findings = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        os.environ |= {"HOME": made, "XDG_CONFIG_HOME": made, "CLEW_OFFLINE": "1"}
        os.environ["CLEW_TRUST"] = made
        os.chdir(place)
        end, rng = time.monotonic() + options.seconds, random.Random(options.seed)
        with targets(place) as every:
            while counts["inputs"] < options.count and time.monotonic() < end:
                for name, (many, target) in every.items():
                    for _ in range(many):
                        attack(name, target, rng, counts, findings)
    print(json.dumps({"counts": counts, "findings": findings}))


def attack(
    name: str, target: Target, rng: random.Random, counts: Counter[str], findings: list[str]
) -> None:
    given: list[Any] = []
    counts["inputs"] += 1
    counts[name] += 1
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(PATIENCE)
    try:
        target(rng, given)
    except clew.ClewError as error:
        counts["refused in Clew's words"] += 1
        if not str(error).strip():
            findings.append(f"bare: {name}: an error without words; {given!r:.500}")
    except BaseException as error:  # a panic of Rust is no Exception
        kind = "hung" if isinstance(error, TimeoutError) else "bare"
        counts[kind] += 1
        if len(findings) < KEPT:
            where = traceback.format_exc()[-700:]
            findings.append(f"{kind}: {name}: {given!r:.500}: {where}")
    finally:
        signal.alarm(0)


def _give_up(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    main()
