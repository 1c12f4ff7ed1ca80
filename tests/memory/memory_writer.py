"""Run by tests: one of several writers of a memory.

    memory_writer.py FILE NAME kill          writes until it is killed, all sorts of things
    memory_writer.py FILE NAME share SECONDS eight threads that do everything for some time
    memory_writer.py FILE NAME fork          uses what it opened in a forked child

Prints what was acknowledged, one line each, and in the end what went wrong.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import clew
from entries import WORDS

from hashing import HashingEmbedder

NAMESPACES = ("ana", "ben", "default")


LOCK = threading.Lock()


def say(*words: object) -> None:
    with LOCK:  # a line is a line, whichever thread it is of
        print(*words, flush=True)


def main(file: str, name: str, act: str, *more: str) -> None:
    memory = clew.Memory(file, embedder=HashingEmbedder())
    {"kill": until_killed, "share": share, "fork": fork}[act](memory, name, *more)
    memory.close()
    say("done")


def until_killed(memory: clew.Memory, name: str) -> None:
    """Batches of 40, chains of which one link holds, twins that become one."""
    chain = memory.remember(f"chain {name} is at 0", id=f"{name}-0").id
    for number in itertools.count(1):
        memory.remember_many(
            [
                {
                    "content": f"batch {name} {number} item {i}",
                    "metadata": {"batch": f"{name}{number}"},
                }
                for i in range(40)
            ]
        )
        say("batch", f"{name}{number}")
        chain = memory.supersede(chain, f"chain {name} is at {number}").id
        say("chain", name, number)
        for text in (f"Twin {name} {number} was here.", f"twin {name} {number} was here"):
            memory.remember(text, namespace="twins", importance=0.5 + 0.1 * text.endswith("."))
        memory.consolidate("twins")
        say("twins", name, number)


def share(memory: clew.Memory, name: str, seconds: str) -> None:
    wrong: list[str] = []
    end = time.monotonic() + float(seconds)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: live(memory, f"{name}{i}", end, wrong), range(8)))
    for problem in wrong:
        say("wrong", problem)


def live(memory: clew.Memory, name: str, end: float, wrong: list[str]) -> None:
    rng, number = random.Random(name), 0
    while time.monotonic() < end:
        space = rng.choice(NAMESPACES)
        try:
            if rng.random() < 0.2:
                number += 1
                made = memory.remember(
                    f"{space} kept {name} {number}", "procedural", namespace=space
                )
                say("kept", made.id)
            rng.choice(ACTS)(memory, rng, space)
            words = " ".join(rng.sample(WORDS, 2))
            vector = HashingEmbedder().embed_query(words)
            for found in (
                *memory.recall(words, namespace=space),
                *memory.vector_search(vector, namespace=space),
            ):
                if found.namespace != space or not found.content.startswith(space):
                    wrong.append(f"{space} was given {found.content}")
        except Exception as error:  # whatever it is, a test will want to see it
            wrong.append(f"{type(error).__name__}: {error}")


def remember(memory: clew.Memory, rng: random.Random, space: str) -> None:
    memory.remember(f"{space} says {rng.choice(WORDS)} {rng.randrange(30)}", namespace=space)


def supersede(memory: clew.Memory, rng: random.Random, space: str) -> None:
    if found := memory.latest(20, "semantic", namespace=space):
        text = f"{space} says {rng.choice(WORDS)} anew {rng.randrange(30)}"
        unless_gone(lambda: memory.supersede(rng.choice(found).id, text))


def update(memory: clew.Memory, rng: random.Random, space: str) -> None:
    if found := memory.latest(20, "semantic", namespace=space):
        unless_gone(lambda: memory.update(rng.choice(found).id, tags=[rng.choice(WORDS)]))
        unless_gone(lambda: memory.feedback(rng.choice(found).id, rng.random() < 0.5))


def forget(memory: clew.Memory, rng: random.Random, space: str) -> None:
    if found := memory.latest(20, "semantic", namespace=space):
        memory.forget(rng.choice(found).id, hard=rng.random() < 0.5)


def evict(memory: clew.Memory, rng: random.Random, space: str) -> None:
    memory.evict(10_000)


def unless_gone(act: Callable[[], object]) -> None:
    """Another thread may have ended or deleted it: that is for the caller to know."""
    try:
        act()
    except clew.InputError as error:
        if "there is no memory" not in str(error) and "has ended already" not in str(error):
            raise


ACTS = (remember, remember, remember, supersede, update, forget, evict)


def fork(memory: clew.Memory, name: str) -> None:
    memory.remember("the boat has a keel")
    memory.recall("keel")  # an access is being counted, by a thread that the child has not
    child = os.fork()
    if child == 0:
        for ask in (memory.stats, memory.latest, lambda: memory.recall("keel"), memory.vacuum):
            try:
                say("child was answered", ask())
            except clew.StoreError as error:
                say("refused" if "forked" in str(error) else error)
        memory.close()
        memory.open()
        say("reopened", len(memory.recall("keel")), memory.remember("the child was here").status)
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", len(memory.latest()), memory.remember("the parent too").status)


if __name__ == "__main__":
    main(*sys.argv[1:])
