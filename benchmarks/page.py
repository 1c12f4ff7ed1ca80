"""How soon the web page is there, and how soon a typed search is, in a headless Chromium.

    python benchmarks/page.py --runs 20 --out docs/benchmarks/page.md

`clew serve` has the bundled sample folder, with vectors. The page is opened in fresh profiles, so
that nothing of it is cached: "first paint" is what the browser reports as its first contentful
paint. Then queries are typed, a key every 60 ms. "Typed search" is from the last key to the first
frame that shows its results: it has the pause for the next key in it (80 ms), the request, the
search (vectors and words; no answer is kept from before), and the drawing of the list.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from report import REPOSITORY, Table, figure, options, p, publish, say

sys.path.insert(0, str(REPOSITORY / "tools"))
from browser import open_browser, serve_sample

QUERIES = (
    "electric fuse keeps blowing",
    "keel bolts torque",
    "how long does epoxy cure in the cold",
    "who looks after the crane",
    "green coffee prices",
    "TX-4471-B",
    "hull cleaning robot battery",
    "what to do about hypothermia",
)
WITHIN = 300  # milliseconds
WEIGHT = 200_000  # bytes
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
LOADED = """performance.getEntries().filter((each) => each.encodedBodySize &&
  (each.entryType === 'navigation' || each.name.includes('/web/'))).map((each) =>
  [new URL(each.name).pathname, each.encodedBodySize])"""
# The frame after the one in which the list of the last key's words stands in the page.
WATCH = """(words) => new Promise((resolve) => {
  const field = document.getElementById('query');
  let pressed = 0;
  field.addEventListener('input', () => { pressed = performance.now(); });
  const look = () => {
    const at = new URLSearchParams(location.search).get('q');
    const list = document.getElementById('results');
    if (at === words && list.dataset.words === words)
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - pressed)));
    else requestAnimationFrame(look);
  };
  look();
})"""


def measure(address: str, *, runs: int) -> dict[str, Any]:
    paints: list[float] = []
    typed: list[float] = []
    weight: dict[str, int] = {}
    with open_browser() as browser:
        for number in range(runs + 2):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            context.set_default_timeout(120_000)
            page = context.new_page()
            page.goto(address)
            while not (
                paint := page.evaluate(PAINT)
            ):  # the page's policy forbids wait_for_function
                page.wait_for_timeout(10)
            words = f"{QUERIES[number % len(QUERIES)]} {number}"  # never asked before
            page.evaluate(f"words => {{ window.shown = ({WATCH})(words); }}", words)
            page.locator("#query").press_sequentially(words, delay=60)
            seconds = page.evaluate("window.shown")
            for view in ("memories", "graph", "tree"):  # what is fetched when it is first looked at
                page.goto(f"{address}?view={view}")
                page.locator("#view > *").first.wait_for()
                weight |= dict(page.evaluate(LOADED))
            context.close()
            if number >= 2:  # the first ones warm up
                paints.append(paint)
                typed.append(seconds)
        say(f"first paint {p(paints, 50):.0f} ms, typed search {p(typed, 50):.0f} ms")
    return {"first paint": paints, "typed search": typed, "bytes": weight}


def tables(measured: dict[str, Any]) -> list[Table]:
    paint, typed = p(measured["first paint"], 50), p(measured["typed search"], 50)
    weight = sum(measured["bytes"].values())
    figures = [
        figure("first paint, median", f"{paint:.0f} ms", f"< {WITHIN} ms", paint < WITHIN),
        figure("typed search, median", f"{typed:.0f} ms", f"< {WITHIN} ms", typed < WITHIN),
        figure("page weight", f"{weight / 1e3:.0f} kB", "< 200 kB", weight < WEIGHT),
    ]
    rows = [
        (name, p(ms, 50), min(ms), p(ms, 95))
        for name, ms in measured.items()
        if isinstance(ms, list)
    ]
    files = sorted(measured["bytes"].items(), key=lambda each: -each[1])
    return [
        Table("Figures", ("figure", "measured", "wanted", "holds"), figures),
        Table("In milliseconds", ("what", "median", "fastest", "p95"), rows),
        Table("What is fetched", ("file", "bytes"), files, "All views together, as transferred."),
    ]


def main() -> None:
    parser = options(__doc__, data=False)
    parser.add_argument("--runs", type=int, default=20, help="times it is opened (default 20)")
    arguments = parser.parse_args()
    with (
        TemporaryDirectory(dir=arguments.work, ignore_cleanup_errors=True) as work,
        serve_sample(Path(work)) as address,
    ):
        measured = measure(address, runs=arguments.runs)
    publish("The web page", __doc__, tables(measured), measured, arguments)


if __name__ == "__main__":
    main()
