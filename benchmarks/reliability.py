"""Kills, failing disks, damaged files, crowds and a long run, each against an oracle.

    python benchmarks/reliability.py --minutes 10 --seed 14 --out docs/reliability.md
    python benchmarks/reliability.py --minutes 0 --soak 60 --out docs/benchmarks/soak.md

The time is divided among the kinds of faults; each runs in `--jobs` processes at once, with seeds
of their own that follow from the one given. `--whole` goes on until 10,000 kills, 2,000 faults,
1,000 corruptions and 1,000,000 fuzzed inputs were tried: about an hour on two cores.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from report import REPOSITORY, Table, figure, options, publish, say

FAULTS = REPOSITORY / "tests" / "faults"
FUZZ = REPOSITORY / "tests" / "fuzz"
PLAN = {
    "kills": (0.4, 10_000),
    "file_faults": (0.2, 2_000),
    "flips": (0.1, 1_000),
    "fuzz": (0.2, 1_000_000),
    "crowd": (0.1, 0),
}
"""Of each kind, its share of the time, and how many are wanted in the whole."""
WHOLE = 4 * 3600.0
"""Seconds after which a kind is given up that is wanted whole."""
sys.path.insert(0, str(FAULTS))

CLUSTER = """## A cluster of Qdrant

`python tests/faults/run.py cluster --seconds 300` starts three real nodes and lets one writer and
one searcher loose on a store with three shards and two replicas, while one node is killed and
started again, one is cut off from the others (in a network namespace of its own, its link taken
down; stopped with SIGSTOP where the machine does not allow that), or all are killed at once. What
was acknowledged has to be there and found, no batch by half, and both have to go on by themselves.
The suite does each once (`tests/faults/test_cluster.py`), and takes the only replica of a shard
away: searches say `degraded`.
"""
_LUCENE = "https://lucene.apache.org/core/9_9_2/test-framework/org/apache/lucene/tests/store"
OTHERS = f"""## What others publish about their own testing

- [SQLite](https://www.sqlite.org/testing.html): out-of-memory, I/O-error, crash and power-loss
  tests, malformed databases, fuzzing, 100 % branch coverage, several hundred times as much test
  code as code; [checksums of pages](https://www.sqlite.org/cksumvfs.html) as an extension. Clew has
  the same kinds of tests except for memory and power, far fewer cases, and no figure of coverage.
- [Lucene]({_LUCENE}/MockDirectoryWrapper.html): the directory of a test can fail at any point, lose
  what was not synced (`crash()`), have files corrupted (`corruptFiles()`), and is examined by
  `CheckIndex` when it is closed. Clew's faults are injected below the libraries, by system call;
  it takes no unsynced writes away.
- Qdrant: [crasher](https://github.com/qdrant/crasher) kills an instance again and again under a
  workload and checks its data; [chaos tests](https://talks.kshivendu.dev/chaos-testing) break a
  cluster on purpose. Clew does the first against an oracle of every acknowledged call, and breaks a
  cluster of three nodes by command.

None of the three publishes a count of kills or faults to hold these figures against.

## Where Clew falls short

- SIGKILL takes the process, not the machine: what the operating system had not yet written is
  still there afterwards. A power cut is not simulated; with `synchronous` at NORMAL one may take
  the last transactions.
- No allocation is made to fail.
- File operations fail through seccomp, so on Linux alone; what is mapped into memory cannot fail.
- The stores here are small (about 150 records), and thresholds of indexes are lowered to match.
"""


def main() -> None:
    parser = options(__doc__ or "", data=False)
    parser.add_argument("--minutes", type=float, default=10, help="divided among the kinds")
    parser.add_argument("--whole", action="store_true", help="until all that is wanted was tried")
    parser.add_argument("--kinds", nargs="+", choices=PLAN, default=list(PLAN), help="only these")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--jobs", type=int, default=2, help="processes of each kind at once")
    parser.add_argument("--growth", action="store_true", help="how the time of parsers grows")
    parser.add_argument("--soak", type=float, default=0, help="minutes of mixed load")
    arguments = parser.parse_args()
    counts, findings = Counter[str](), list[str]()
    started = time.monotonic()
    for kind in arguments.kinds if arguments.minutes else ():
        share, many = PLAN[kind]
        seconds = WHOLE if arguments.whole and many else arguments.minutes * 60 * share
        say(f"{kind}: {f'{many:,}' if arguments.whole and many else f'{seconds:.0f} s'}")
        each = -(-many // arguments.jobs) if arguments.whole and many else 10**9
        for result in run(kind, arguments.seed, seconds, each, arguments.jobs):
            counts.update({f"{kind}: {name}": n for name, n in result["counts"].items()})
            findings += [f"{kind}: {finding}" for finding in result["findings"]]
    minutes = (time.monotonic() - started) / 60
    tables = [summarise(counts, arguments, minutes)] if arguments.minutes else []
    if arguments.minutes:
        tables += [describe_operations(counts), describe_damages(counts)]
    if arguments.growth:
        tables.append(describe_growth())
    samples = soak(arguments.seed, arguments.soak * 60) if arguments.soak else []
    if samples:
        tables.append(describe_soak(samples))
    publish(
        "Reliability" if arguments.minutes else "A long run",
        f"`python benchmarks/reliability.py{' --whole' if arguments.whole else ''} --minutes "
        f"{arguments.minutes:g} --seed {arguments.seed} --jobs {arguments.jobs}"
        f"{f' --kinds {chr(32).join(arguments.kinds)}' if arguments.kinds != list(PLAN) else ''}"
        f"{' --growth' if arguments.growth else ''}"
        f"{f' --soak {arguments.soak:g}' if arguments.soak else ''}` printed this; the same seed "
        "makes the same plans, while the moments of kills depend on the machine. How it works: "
        "`tests/faults/`.",
        tables,
        {"counts": counts, "findings": findings, "soak": samples},
        arguments,
    )
    if arguments.out:
        finish_page(arguments.out, findings, samples, counted=bool(arguments.minutes))
    for finding in findings:
        say(finding)


def run(kind: str, seed: int, seconds: float, count: int, jobs: int) -> list[dict[str, Any]]:
    program = [FUZZ / "run.py"] if kind == "fuzz" else [FAULTS / "run.py", kind]

    def start(number: int) -> dict[str, Any]:
        command = [sys.executable, *map(str, program), f"--seed={seed * 1000 + number}"]
        done = subprocess.run(
            [*command, f"--seconds={seconds}", f"--count={count}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return {"counts": {"broken": 1}, "findings": [done.stderr[-2000:]]}
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(start, range(jobs)))


def summarise(counts: Counter[str], arguments: Any, minutes: float) -> Table:
    killed = counts["kills: kills"] + counts["file_faults: kills at a file operation"]
    rows = [
        _row("kills survived", killed, counts, "kills"),
        _row("faults injected", counts["file_faults: faults"], counts, "file_faults"),
        _row("corruptions tried", counts["flips: corruptions"], counts, "flips"),
        _row("inputs fuzzed", counts["fuzz: inputs"], counts, "fuzz"),
        _row("calls at once, in a crowd", counts["crowd: calls at once"], counts, "crowd"),
    ]
    note = (
        f"{minutes:.0f} minutes on {arguments.jobs} processes, seed {arguments.seed}. "
        f"{counts['kills: acknowledged']:,} calls were acknowledged before a kill and "
        f"{counts['kills: looked at']:,} items looked at afterwards; of the faults "
        f"{counts['file_faults: told']:,} were said in Clew's "
        "words, the others passed unnoticed by the caller. Wrong: served, and not what was "
        "written. Other errors: not Clew's own, crashes, hangs, and errors where nothing was amiss."
    )
    columns = ("", "tried", "wanted", "lost", "doubled", "silently wrong", "other errors")
    return Table("Figures", columns, rows, note)


def _row(what: str, tried: int, counts: Counter[str], kind: str) -> tuple[Any, ...]:
    def bad(*names: str) -> int:
        return sum(counts[f"{kind}: {name}"] for name in names)

    wanted = f"{PLAN[kind][1]:,}" if PLAN[kind][1] else ""
    others = bad("bare", "crashed", "hung", "refused", "broken", "not mended")
    return what, tried, wanted, bad("lost"), bad("doubled"), bad("wrong"), others


def describe_operations(counts: Counter[str]) -> Table:
    mark = "kills: during "
    rows = [
        (name.removeprefix(mark), count)
        for name, count in counts.most_common()
        if name.startswith(mark)
    ]
    note = "`nothing`: between two. Store and memory have some of the same name; both are meant."
    return Table("Where the kills fell", ("operation", "kills"), rows, note)


def describe_damages(counts: Counter[str]) -> Table:
    outcomes = ("harmless", "named", "wrong", "bare")
    parts = sorted(
        {n.split(": ")[1] for n in counts if n.startswith("flips: ") and n.count(":") > 1}
    )
    rows = [(part, *(counts[f"flips: {part}: {each}"] for each in outcomes)) for part in parts]
    note = (
        "One bit, 64 bytes or the end of one file. Harmless: all was served as it was written, "
        "perhaps by an index made anew. Named: an error in Clew's words, or an answer that says "
        f"what it lacks. Of those that were not harmless `doctor --mend` made "
        f"{counts['flips: mended']:,} good, said of {counts['flips: loss said']:,} what is lost, "
        f"and failed with {counts['flips: not mended']:,}; "
        f"{counts['flips: wrong, and doctor content']:,} were served wrong with `doctor` content."
    )
    return Table("Damaged files", ("part", *outcomes), rows, note)


# ---------------------------------------------------------------- the long run


def describe_growth() -> Table:
    """The largest exponent of each parser, over inputs made to keep it busy."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "security"))
    from growth import FACTOR, MOST, measure_all

    say("growth: about a minute")
    worst: dict[str, tuple[float, str]] = {}
    inputs = Counter[str]()
    for parser, piece, exponent in measure_all():
        inputs[parser] += 1
        worst[parser] = max(worst.get(parser, (0.0, "")), (exponent, piece))
    return Table(
        "How time grows with size",
        ("parser", "inputs", "largest exponent", "of many"),
        [
            (name, inputs[name], f"{exponent:.2f}", repr(piece))
            for name, (exponent, piece) in worst.items()
        ],
        f"{sum(inputs.values())} inputs, each {FACTOR} times as large; 1 is linear, at most "
        f"{MOST} is wanted, {max(worst.values())[0]:.2f} is the largest.",
    )


def soak(seed: int, seconds: float) -> list[dict[str, float]]:
    say(f"soak: {seconds:.0f} s")
    every = max(1.0, min(10.0, seconds / 60))
    command = [sys.executable, str(FAULTS / "soak.py"), f"--seed={seed}"]
    done = subprocess.run(
        [*command, f"--seconds={seconds}", f"--every={every}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def describe_soak(samples: list[dict[str, float]]) -> Table:
    from soak import FLAT, growth

    rows = []
    for name, most in FLAT.items():
        values, grown = [each[name] for each in samples], growth(samples, name)
        spread = f"{min(values):g} to {max(values):g}"
        rows.append((*figure(name, f"{grown:+.0%}", f"≤ {most:+.0%}", grown <= most), spread))
    note = (
        f"{samples[-1]['seconds'] / 60:.1f} minutes, {samples[-1]['calls']:,.0f} calls on a store "
        "and a memory in one process: how far the last third lies above the middle one."
    )
    return Table("Long run", ("", "growth", "wanted", "flat", "range"), rows, note)


def draw(samples: list[dict[str, float]], file: Path) -> None:
    """One line for each of the figures, one below the other."""
    names = {"rss_mb": "memory, MB", "files": "open files", "disk_mb": "disk, MB"}
    names |= {"p50_ms": "search p50, ms", "p95_ms": "search p95, ms"}
    width, height, left = 720, 90, 130
    last = samples[-1]["seconds"]
    parts = []
    for row, (name, label) in enumerate(names.items()):
        most = max(each[name] for each in samples) or 1
        top = row * height + 10
        points = " ".join(
            f"{left + (width - left - 10) * each['seconds'] / last:.1f},"
            f"{top + (height - 20) * (1 - each[name] / most):.1f}"
            for each in samples
        )
        bottom = top + height - 20
        parts += [
            f'<text x="4" y="{top + 14}">{label}</text>',
            f'<text x="4" y="{top + 32}" fill="#777">up to {most:g}</text>',
            f'<line x1="{left}" y1="{bottom}" x2="{width - 10}" y2="{bottom}" stroke="#ccc"/>',
            f'<polyline points="{points}" fill="none" stroke="#c0392b" stroke-width="1.5"/>',
        ]
    total = len(names) * height + 24
    parts.append(f'<text x="{left}" y="{total - 8}" fill="#777">0 to {last / 60:.1f} min</text>')
    file.parent.mkdir(parents=True, exist_ok=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" '
    style = (
        'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>'
    )
    file.write_text(head + style + "\n" + "\n".join(parts) + "\n</svg>\n", "utf-8")


def finish_page(
    page: Path, findings: list[str], samples: list[dict[str, float]], *, counted: bool
) -> None:
    """What the tables do not say: what was found, the picture, and the others."""
    text = page.read_text("utf-8")
    if samples:
        draw(samples, page.with_suffix(".svg"))
        text += f"\n![Memory, files, disk and latency over the run]({page.stem}.svg)\n"
    if findings:
        found = [re.sub(r"/tmp/[^/ ]+/", "", finding) for finding in findings]
        kept = [" ".join(finding.split())[:300] for finding in found[:25]]
        more = f" (the first {len(kept)} of {len(findings)})" if len(findings) > len(kept) else ""
        text += f"\n## What was found{more}\n\n" + "".join(f"- `{each}`\n" for each in kept)
    if counted:
        text += (
            f"\nThe long run is in [benchmarks/soak.md](benchmarks/soak.md).\n\n{CLUSTER}\n{OTHERS}"
        )
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
