"""Run by tests: asks a cache and keeps answers in it, in several threads, for as long as it is let.

    asker.py FILE SEED [--rounds N] [--threads N]

Prints `at work` when it has begun, `wrong NAME` for an answer that is not the right one, and at the
end how many there were: `found N`.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from cached import keep, key, result, same

from clew.cache import SearchCache


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    cache = SearchCache(options.file, entries=60)
    found: list[str] = []

    seeds = range(options.seed * 100, options.seed * 100 + options.threads)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for number in range(options.rounds):
            name = f"n{'abcdefghij'[rng.integers(10)]}{'abcdefghij'[rng.integers(10)]}"
            answer = cache.get(key(name))
            if answer is None:
                keep(cache, name)
            elif same(answer, result(name)):
                found.append(name)
            else:
                print(f"wrong {name}", flush=True)
            if number % 10 == 0:
                cache.flush()
            if number == 10 and seed == seeds[0]:
                print("at work", flush=True)

    with ThreadPoolExecutor(len(seeds)) as threads:
        list(threads.map(work, seeds))
    cache.close()
    print(f"found {len(found)}", flush=True)


if __name__ == "__main__":
    main()
