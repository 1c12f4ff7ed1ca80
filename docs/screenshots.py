"""Take the pictures of docs/web.md: the page with the sample folder, in a headless Chromium.

    python docs/screenshots.py docs/images

`make picture` does it. Letters are those that tools/browser.py has fetched, if it has fetched any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from browser import open_browser, serve_sample

DESK, TALL = {"width": 1280, "height": 800}, {"width": 1280, "height": 1060}
PHONE = {"width": 375, "height": 720}
WARM = ("rope", "harbour master", "coffee")
"""Asked before, so that the times shown are those of a server that has been running."""
EPOXY = {"q": "epoxy cure time", "open": "sample:protocols/protocol-137-epoxy-cure.md"}
FUSE = {"q": "electric fuse keeps blowing", "open": "sample:journal/2025-05-30-sauna-heater.md"}
SHOTS = {
    "web-why": (TALL, "light", {**EPOXY, "line": 24, "pane": "why"}, ".time"),
    "web-file": (DESK, "light", {**FUSE, "line": 11}, ".row.target"),
    "web-graph": (DESK, "light", {"view": "graph", "entity": "Łukasz Brandt"}, ".picture svg"),
    "web-phone": (PHONE, "light", {"q": "keel bolts torque"}, "#results li"),
    "web-dark": (DESK, "dark", {"q": "who looks after the crane"}, ".time"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write to")
    out = parser.parse_args().out
    with (
        tempfile.TemporaryDirectory() as work,
        serve_sample(Path(work)) as address,
        open_browser() as browser,
    ):
        for words in WARM:
            browser.new_page().goto(f"{address}search?q={words}")
        for name, (size, colours, state, ready) in SHOTS.items():
            context = browser.new_context(viewport=size, color_scheme=colours)
            page = context.new_page()
            page.goto(f"{address}?{urlencode(state)}")
            page.locator(ready).first.wait_for()
            page.wait_for_timeout(400)
            shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
            # 256 colours are enough for letters and bars, and a third of the bytes.
            few = shot.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            few.save(out / f"{name}.png", optimize=True)
            context.close()


if __name__ == "__main__":
    main()
