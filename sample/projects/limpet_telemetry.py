"""Turn a Limpet telemetry log into a run summary.

The log has one JSON object per line and one line per minute; see
limpet-telemetry.jsonl for a short sample.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

STALL_AMP = 5.0  # a free track never draws more than 3.2 A, so 5 A is a jam


def read_log(path: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of a log file, skipping blank lines."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def is_stalled(track_amp: float, *, limit: float = STALL_AMP) -> bool:
    """Say whether the track current means that something is wound round it."""
    return track_amp >= limit


@dataclass
class RunSummary:
    """What one run looked like: how long, how deep, how often it jammed."""

    run: str
    boat: str
    minutes: int = 0
    deepest_m: float = 0.0
    stalls: int = 0
    events: list[str] = field(default_factory=list)

    def add_row(self, row: dict[str, object]) -> None:
        """Take one minute of telemetry into account."""
        self.minutes += 1
        self.deepest_m = max(self.deepest_m, float(str(row["depth_m"])))
        self.stalls += is_stalled(float(str(row["track_amp"])))
        if row["event"]:
            self.events.append(str(row["event"]))


def summarise_runs(rows: Iterable[dict[str, object]]) -> list[RunSummary]:
    """Group the rows by run, in the order in which the runs began."""
    summaries: dict[str, RunSummary] = {}
    for row in rows:
        run = str(row["run"])
        summary = summaries.setdefault(run, RunSummary(run, str(row["boat"])))
        summary.add_row(row)
    return list(summaries.values())


if __name__ == "__main__":
    for summary in summarise_runs(read_log(Path(__file__).with_name("limpet-telemetry.jsonl"))):
        print(f"{summary.run} {summary.boat}: {summary.minutes} min, {summary.stalls} stalls")
