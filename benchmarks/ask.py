"""`clew ask` on the bundled sample: which questions are answered, from the right file, and which
are refused as not in the files.

    python benchmarks/ask.py --out docs/benchmarks/ask.md

Questions were written by somebody who had read the files, before anything was measured, mostly in
other words than the files have. Every second one chooses the threshold, the others say what it is
worth.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import clew
from clew.ask import ask

SAMPLE = Path(__file__).parents[1] / "sample"
ANSWERABLE = (
    ("How tight should the bolts of a Kestrel 28's keel be?", "keel-bolts-kestrel-28"),
    ("How often do we inspect the Kestrel 28's keel fastenings?", "keel-bolts-kestrel-28"),
    ("When is the resin hard enough to sand at 18 degrees?", "protocol-137-epoxy-cure"),
    ("What is the mixing proportion of resin to hardener?", "protocol-137-epoxy-cure"),
    ("How do I get rid of the greasy layer on damp days before sanding?", "protocol-137"),
    ("Why does the heating in the cottage cut the power?", "sauna-heater"),
    ("Which part of the stove was damp?", "sauna-heater"),
    ("What illness does the dog have?", "pixel-vet-visit"),
    ("At what hours does Pixel get her medicine?", "pixel-vet-visit"),
    ("How much does the dog weigh?", "pixel-vet-visit"),
    ("Why did the yacht slide while it was being lifted?", "crane-near-miss"),
    ("How strong may the wind be for lifting boats?", "crane-near-miss"),
    ("Which supplier should put photovoltaics on the shed?", "slipway-solar"),
    ("How many years until the solar panels have paid for themselves?", "slipway-solar"),
    ("How much electricity did the shed consume in a year?", "slipway-solar"),
    ("What made the coffee roaster squeak?", "roaster-rebuild"),
    ("What is the part number of the roaster's bearing?", "roaster-rebuild"),
    ("What beans are in the espresso mix?", "harbour-espresso-blend"),
    ("How long must the beans rest after roasting?", "harbour-espresso-blend"),
    ("At what temperature does first crack happen?", "harbour-espresso-blend"),
    ("What must Lukasz not breathe in?", "lukasz-brandt"),
    ("On which weekdays does the robot engineer work on the robot?", "limpet|lukasz-brandt"),
    ("What do I do when the crawler is stuck below a boat?", "lukasz-brandt|limpet"),
    ("When may I phone Zoe?", "zoe-marchetti"),
    ("Which languages does the founder speak?", "zoe-marchetti"),
    ("Why do we no longer bill by the hour?", "pricing-decision"),
    ("How much do we add to a quote for surprises?", "pricing-decision"),
    ("Why did we decide against buying a cleaning robot?", "limpet-kickoff"),
    ("What does a diver cost?", "limpet-hull-crawler"),
    ("Why is the bilge pump not behind the main switch?", "marlin-rewiring"),
)
UNANSWERABLE = (
    "How tight should the bolts of an Albatross 40's keel be?",
    "What does the workshop pay for insurance?",
    "How old is Greta's daughter?",
    "Which football team does Zoe support?",
    "What is the capital of Mongolia?",
    "How do I renew a passport?",
    "Which vaccine did the cat get?",
    "What is the password of the wireless network?",
    "How many people live in Hamburg?",
    "Who won the regatta in 2024?",
    "What is the recipe for tiramisu?",
    "How do I configure a Kubernetes cluster?",
    "What is the melting point of tungsten?",
    "When was the Treaty of Westphalia signed?",
    "How much is the monthly rent of the café?",
    "Which lawyer handled the merger?",
    "What is the boiling point of the varnish thinner?",
    "How many sails does the workshop sew each year?",
    "What is the interest rate of the bank loan?",
    "Which airline flies to Reykjavik on Sundays?",
    "How do I train a neural network?",
    "What did the dentist say about the wisdom tooth?",
    "Which car does Hanako drive?",
    "What is the serial number of the forklift?",
    "How long is the warranty of the dishwasher?",
    "Who painted the mural in the town hall?",
    "What is the dosage of ibuprofen for children?",
    "How many calories are in a croissant?",
    "Which hotel did the accountant book in Lisbon?",
    "What does photosynthesis produce?",
)


class Outcome(NamedTuple):
    question: str
    chance: float
    """The highest of a passage: the threshold lets the answer through from there on."""
    right: bool | None
    """Whether the passages that are read are of the right file; None: there is none."""
    answered: bool


def look(engine: clew.Engine, question: str, file: str | None) -> Outcome:
    found = engine.search(question, limit=8, syntax=False, group_by="passage")
    answer = ask(engine, question, quote=True)
    cited = [each.path or "" for each in answer.citations]
    right = None
    if file is not None:
        right = any(part in path for part in file.split("|") for path in cited)
    return Outcome(
        question, max((h.chance or 0.0 for h in found), default=0.0), right, answer.found
    )


def count(yes: list[Outcome], no: list[Outcome], least: float) -> tuple[int, int]:
    return sum(o.chance >= least for o in yes), sum(o.chance < least for o in no)


def measure(folder: Path) -> list[str]:
    with clew.open(folder) as engine:
        engine.index()
        now = engine.config.confidence_med
        yes = [look(engine, question, file) for question, file in ANSWERABLE]
        no = [look(engine, question, None) for question in UNANSWERABLE]
    lines = [
        f"{len(yes)} questions that the sample answers, {len(no)} that it does not; quoted "
        f"answers, threshold {now} (`confidence_med`).",
        "",
        f"- answered: {sum(o.answered for o in yes)} of {len(yes)}, from the right file "
        f"{sum(o.answered and bool(o.right) for o in yes)}",
        f"- refused: {sum(not o.answered for o in no)} of {len(no)}",
        "",
        "| least chance | answered | refused | both, of the choosing half | of the other half |",
        "|--:|--:|--:|--:|--:|",
    ]
    steps = sorted({now, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5})
    right = {least: sum(count(yes[::2], no[::2], least)) for least in steps}
    best = [f"{least:g}" for least in steps if right[least] == max(right.values())]
    for least in steps:
        answered, refused = count(yes, no, least)
        half, other = count(yes[::2], no[::2], least), count(yes[1::2], no[1::2], least)
        lines.append(f"| {least:g} | {answered} | {refused} | {sum(half)} | {sum(other)} |")
    lines += ["", f"Each half has {len(yes)}; the choosing one is best at {', '.join(best)}.", ""]
    wrong = [f"- refused: {o.question} ({o.chance:.3f})" for o in yes if not o.answered]
    wrong += [f"- another file: {o.question}" for o in yes if o.answered and not o.right]
    wrong += [f"- answered: {o.question} ({o.chance:.3f})" for o in no if o.answered]
    return [*lines, "What went wrong:", "", *wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "sample")
        shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns(".clew"))
        lines = measure(folder)
    text = (
        "\n".join(["# Answers, and refusals", "", "`python benchmarks/ask.py`", "", *lines]) + "\n"
    )
    print(text)
    if given.out:
        given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
