"""Clew and its peers, each in a process and an environment of its own.

peers/requirements.toml names them and pins what they need; peers/peer_NAME.py says how each is used
and why so. An environment is made once, in .cache/peers/, and used again until its pins change.
Peers never become dependencies of Clew, and import nothing of it.

    python benchmarks/systems.py            which there are, and whether they are installed
    python benchmarks/systems.py install    install all that are missing (about 4 GB)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from report import REPOSITORY, Table, say

HERE = Path(__file__).parent
CACHE = HERE / ".cache" / "peers"
CLEW = "clew"
QUIET = {
    # Nothing is to be sent or fetched while something is measured.
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "LANCE_LOG": "error",
    "LANGSMITH_TRACING": "false",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True)
class System:
    """One row of requirements.toml."""

    key: str
    name: str
    requires: tuple[str, ...]
    licence: str
    hybrid: str
    """What its hybrid search is made of."""
    filter: str
    """How it keeps to a scope."""

    @property
    def has_hybrid(self) -> bool:
        return not self.hybrid.startswith("none")

    @property
    def home(self) -> Path:
        pins = json.dumps([*self.requires, platform.python_version(), platform.machine()])
        return CACHE / f"{self.key}-{hashlib.sha256(pins.encode()).hexdigest()[:10]}"

    @property
    def python(self) -> Path:
        if not self.requires:
            return Path(sys.executable)
        return self.home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def installed(self) -> dict[str, float]:
        """Seconds and megabytes of its installation; empty where there is none yet."""
        done = self.home / "installed.json"
        return json.loads(done.read_text("utf-8")) if done.exists() else {}

    def install(self) -> str:
        """Make its environment unless it stands. What went wrong, or nothing."""
        if not self.requires or self.installed():
            return ""
        say(f"{self.name}: installing {', '.join(self.requires)}…")
        shutil.rmtree(self.home, ignore_errors=True)
        begun = time.monotonic()
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(self.home)], [*pip, *self.requires]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
                return f"cannot be installed: {(errors or [done.stderr.strip()])[-1]}"
        megabytes = sum(f.stat().st_size for f in self.home.rglob("*") if f.is_file()) / 1e6
        numbers = {"seconds": time.monotonic() - begun, "mb": megabytes}
        (self.home / "installed.json").write_text(json.dumps(numbers), "utf-8")
        say(f"{self.name}: installed in {numbers['seconds']:.0f} s, {megabytes:,.0f} MB")
        return ""

    def run(self, job: Path) -> Outcome:
        """Have it do the job in a process of its own. Failures are an outcome too."""
        job = job.resolve()
        outcome = Outcome(self)
        outcome.failure = self.install()
        if outcome.failure:
            return outcome
        settings = json.loads((job / "job.json").read_text("utf-8"))
        for name in ("built.json", "answers.jsonl", "done.json"):
            (job / name).unlink(missing_ok=True)
        shutil.rmtree(settings["index"], ignore_errors=True)
        script = HERE / "peers" / f"peer_{self.key}.py"
        with (job / "stderr.txt").open("w+", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [str(self.python), str(script), str(job)],
                cwd=job,
                env=self._environment(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            late = _wait(process, job, settings)
            errors.seek(0)
            lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
        outcome.read(job)
        if late:
            outcome.failure = late
        elif process.returncode:
            outcome.failure = f"failed: {lines[-1][:200] if lines else process.returncode}"
        shutil.rmtree(settings["index"], ignore_errors=True)
        return outcome

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, **QUIET}
        if self.key == CLEW:
            environment["PYTHONPATH"] = str(REPOSITORY / "src")
        else:
            environment.pop("PYTHONPATH", None)
        return environment


@dataclass(frozen=True, slots=True)
class Answer:
    id: str
    """Of the query."""
    ids: list[str]
    ms: float


@dataclass(slots=True)
class Outcome:
    """What came of a job."""

    system: System
    build_seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    """By mode."""
    memory: dict[str, float] = field(default_factory=dict)
    disk_mb: float | None = None
    notes: list[str] = field(default_factory=list)
    failure: str = ""

    def read(self, job: Path) -> None:
        if (job / "built.json").exists():
            built = json.loads((job / "built.json").read_text("utf-8"))
            self.build_seconds, self.versions = built["seconds"], built["versions"]
        if (job / "answers.jsonl").exists():
            for line in (job / "answers.jsonl").read_text("utf-8").splitlines():
                given = json.loads(line)
                mode = given.pop("mode")
                self.answers.setdefault(mode, []).append(Answer(**given))
        if (job / "done.json").exists():
            done = json.loads((job / "done.json").read_text("utf-8"))
            self.memory, self.disk_mb, self.notes = done["memory"], done["disk_mb"], done["notes"]


def _wait(process: subprocess.Popen[Any], job: Path, settings: dict[str, Any]) -> str:
    """Until it ends, or runs out of patience; which it was."""
    patience = settings["patience"]
    begun = time.monotonic()
    # Answering ends by itself between two queries; the last minute is for saying so.
    whole = patience * (1 + len(settings["modes"])) + 60
    while process.poll() is None:
        spent = time.monotonic() - begun
        loading = not (job / "built.json").exists()
        if spent > (patience if loading else whole):
            process.kill()
            process.wait()
            return f"not {'loaded' if loading else 'done'} after {spent:,.0f} s"
        time.sleep(0.05)
    return ""


def systems() -> dict[str, System]:
    """All of them, Clew first."""
    table = tomllib.loads((HERE / "peers" / "requirements.toml").read_text("utf-8"))
    return {
        key: System(key=key, **{**row, "requires": tuple(row["requires"])})
        for key, row in table.items()
    }


def chosen(names: str | None) -> list[System]:
    """Clew, and the peers named in a list with commas; all where none is named."""
    known = systems()
    keys = [key for key in known if key != CLEW]
    if names is not None:
        keys = [key.strip() for key in names.split(",") if key.strip() not in ("", CLEW)]
        unknown = [key for key in keys if key not in known]
        if unknown:
            there = ", ".join(key for key in known if key != CLEW)
            raise SystemExit(f"no peer is called {', '.join(unknown)}: there are {there}")
    return [known[CLEW], *(known[key] for key in keys)]


def write_job(
    folder: Path,
    *,
    texts: Iterable[dict[str, str]],
    vectors: npt.NDArray[np.float32],
    queries: Iterable[dict[str, str]],
    query_vectors: npt.NDArray[np.float32],
    modes: Sequence[str],
    patience: float,
    k: int = 10,
    warmup: int = 0,
    target: float | None = None,
    tokens: Mapping[str, Sequence[npt.NDArray[Any]]] | None = None,
) -> Path:
    """The job's folder, for System.run. `texts` and `queries` have id, text and scope; `tokens`
    are matrices for late interaction, by the file's name."""
    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "texts.jsonl", texts)
    _lines(folder / "queries.jsonl", queries)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "query_vectors.npy", query_vectors)
    for name, of in (tokens or {}).items():
        lengths = np.array([len(each) for each in of])
        np.savez(folder / f"{name}.npz", rows=np.concatenate(list(of)), lengths=lengths)
    settings = {
        "k": k,
        "modes": list(modes),
        "warmup": warmup,
        "patience": patience,
        "target": target,
        "index": str((folder / "index").resolve()),
    }
    (folder / "job.json").write_text(json.dumps(settings), "utf-8")
    return folder


def _lines(path: Path, rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            print(json.dumps({"scope": "", **row}), file=out)


def about(outcomes: Iterable[Outcome]) -> Table:
    """Versions, licences, and how each was used."""
    rows = []
    for outcome in outcomes:
        system = outcome.system
        versions = ", ".join(f"{name} {number}" for name, number in outcome.versions.items())
        size = system.installed().get("mb")
        rows.append(
            (
                system.name,
                versions or "–",
                system.licence,
                system.hybrid,
                system.filter,
                f"{size:,.0f}" if size else "–",
            )
        )
    columns = ("system", "versions", "licence", "hybrid search", "filter", "environment MB")
    note = (
        "k is 10. Each system is used as its documentation recommends; the header of its file in "
        "benchmarks/peers/ says how, with the page. Peers run in environments of their own."
    )
    return Table("The systems", columns, rows, note)


def command(script: str) -> str:
    """What was typed, for the page with the results."""
    return shlex.join(["python", f"benchmarks/{script}", *sys.argv[1:]])


def page(about: str, script: str, arguments: argparse.Namespace) -> str:
    """The text above the tables: what was measured, the command that did it, and its plot."""
    parts = [about.strip(), f"Made with `{command(script)}`."]
    if arguments.plot and arguments.out:
        place = os.path.relpath(arguments.plot.resolve(), arguments.out.resolve().parent)
        parts.append(f"![the same as a plot]({place})")
    return "\n\n".join(parts)


def draw(numbers: dict[str, Any], plot: Path) -> None:
    """Have draw.py make the plot, in an environment with matplotlib: Clew needs none."""
    pins = ("matplotlib==3.11.2", "numpy==2.4.6")
    plotter = System("plot", "matplotlib", pins, "PSF-based", "none", "")
    plot.parent.mkdir(parents=True, exist_ok=True)
    failure = plotter.install()
    if not failure:
        with TemporaryDirectory() as work:
            file = Path(work) / "numbers.json"
            file.write_text(json.dumps(numbers), "utf-8")
            words = [str(plotter.python), str(HERE / "draw.py"), str(file), str(plot.resolve())]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            failure = done.stderr.strip() if done.returncode else ""
    say(f"no plot: {failure}" if failure else f"drawn: {plot}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("list", "install"), default="list")
    parser.add_argument("--peers", help="some of them, with commas (default: all)")
    arguments = parser.parse_args()
    for system in chosen(arguments.peers):
        failure = system.install() if arguments.what == "install" else ""
        size = system.installed().get("mb")
        state = failure or (f"installed, {size:,.0f} MB" if size else "not installed")
        if system.key == CLEW:
            state = "this checkout"
        print(f"{system.key:12} {system.name:20} {state}")


if __name__ == "__main__":
    main()
