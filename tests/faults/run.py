"""One kind of fault, in a process of its own: prints counts and findings as JSON.

python tests/faults/run.py kills|file_faults|flips|crowd|cluster --seed 1 --seconds 30 [--count 100]
"""

from __future__ import annotations

import argparse
import json
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # a process that forks has no threads

import cluster  # noqa: E402
import crowd  # noqa: E402
import file_faults  # noqa: E402
import flips  # noqa: E402
import kills  # noqa: E402

KINDS = {
    "kills": lambda seed, count, seconds: kills.run(seed=seed, kills=count, seconds=seconds),
    "file_faults": lambda seed, count, seconds: file_faults.run(
        seed=seed, faults=count, seconds=seconds
    ),
    "flips": lambda seed, count, seconds: flips.run(seed=seed, flips=count, seconds=seconds),
    "crowd": lambda seed, count, seconds: crowd.run(seed=seed, seconds=seconds),
    "cluster": lambda seed, count, seconds: cluster.run(seed=seed, count=count, seconds=seconds),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    tally = KINDS[options.kind](options.seed, options.count, options.seconds)
    print(json.dumps({"counts": tally.counts, "findings": tally.findings}))


if __name__ == "__main__":
    main()
