"""The catalogue of models: what each is, which files it needs, and where they lie on this machine.

A model lies in `<models_dir>/<id>-<first 12 hex of its hash>/`. That folder appears by a rename
when every file in it has been verified (download.py), so a cheap look tells whether it is whole.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from clew.errors import ConfigError, ModelError, check_known
from clew.text.analyser import SCRIPTS
from clew.trust import cache_folder

SHIPPED = Path(__file__).with_name("catalogue.toml")
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
TORCH_FILE = "model.safetensors"
"""In the place of a graph, where PyTorch runs the model."""
TASKS = ("embed", "rerank", "late-interaction")
MARKER = ".verified"
"""Lies in the folder of a model that is whole."""


class ModelFile(NamedTuple):
    """One file of a model. It is what its hash says, wherever it came from."""

    name: str
    sha256: str
    size: int
    hub: str | None = None
    """Path in the hub repository."""
    member: str | None = None
    """Path inside the wheel."""


class Wheel(NamedTuple):
    """A pinned wheel on the package index that carries the files."""

    name: str
    version: str
    sha256: str | None = None
    size: int = 0
    """For the progress bar; 0: not known."""


class CatalogueModel(NamedTuple):
    """One model of the catalogue."""

    id: str
    task: Literal["embed", "rerank", "late-interaction"]
    files: tuple[ModelFile, ...]
    max_tokens: int
    pooling: Literal["cls", "mean", "none"]
    dim: int = 0
    """Length of a vector; 0 for a reranker."""
    query_prefix: str = ""
    document_prefix: str = ""
    query_tokens: int = 0
    """To so many a query is padded, by a model of late interaction; its prefixes are one token."""
    projection: str = ""
    """A file beside the catalogue that the graph ends before: what makes `dim` of its width."""
    least_cosine: float = 0.5
    """Below it a text has nothing to do with a query; models differ in where that is."""
    scripts: tuple[str, ...] = ()
    """Those it knows, of the analyser's; none named: all."""
    licence: str = "unknown"
    description: str = ""
    hub: str | None = None
    """Repository on the Hugging Face hub."""
    revision: str = "main"
    """Of that repository."""
    wheel: Wheel | None = None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def identity(self) -> str:
        """Names model and weights, so that vectors of two quantisations are never mixed."""
        weights = next(file for file in self.files if file.name in (MODEL_FILE, TORCH_FILE))
        return f"{self.id}@{weights.sha256[:12]}"

    @property
    def folder(self) -> Path:
        return models_dir() / f"{file_stem(self.id)}-{self.identity.rpartition('@')[2]}"


def file_stem(id: str) -> str:
    """The id of a model as a part of file names."""
    return id.replace(":", "--").replace("/", "--")


@functools.cache
def catalogue() -> Mapping[str, CatalogueModel]:
    """Every model that comes with Clew, by id."""
    return MappingProxyType(read_catalogue(SHIPPED))


def find_model(id: str | CatalogueModel) -> CatalogueModel:
    """The model of this id, or a ConfigError with the nearest one; of the hub, if it was pulled."""
    if isinstance(id, CatalogueModel):
        return id
    if id.startswith("hf:"):
        from clew.models import hub

        if (entry := hub.read_entry(id)) is None:
            raise ModelError(f"{id} was never pulled: run `clew models pull {id}`")
        return entry
    known = catalogue()
    check_known("unknown model", known, id, kind=ConfigError)
    return known[id]


def models_dir() -> Path:
    """Where models are kept: CLEW_MODELS, or a folder in the user's cache."""
    return cache_folder("models", "CLEW_MODELS")


def model_path(model: str | CatalogueModel) -> Path | None:
    """The model's folder if it is here and whole. Looks at names and sizes, and hashes nothing."""
    model = find_model(model)
    folder = model.folder
    try:
        sizes = [(folder / file.name).stat().st_size for file in model.files]
    except OSError:
        return None
    whole = sizes == [file.size for file in model.files] and (folder / MARKER).is_file()
    return folder if whole else None


def is_own(folder: Path) -> bool:
    """Whether nobody but this user and root can have put there what lies in a model's folder."""
    if not hasattr(os, "getuid"):
        return True
    for place in (folder.parent, folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a copy that is being made
            state = place.stat()
            others = stat.S_IWOTH | (stat.S_IWGRP if state.st_gid != os.getgid() else 0)
            sticky = place == folder.parent and state.st_mode & stat.S_ISVTX
            if state.st_uid not in (os.getuid(), 0) or (state.st_mode & others and not sticky):
                return False
    return True


def read_whole(model: CatalogueModel, folder: Path, name: str) -> bytes:
    """A file of a model, if it is the very one."""
    from hashlib import sha256

    data = (folder / name).read_bytes()
    if sha256(data).hexdigest() != next(f.sha256 for f in model.files if f.name == name):
        raise ModelError(f"{name} is not the file of that model: others can write there")
    return data


def read_catalogue(path: Path) -> dict[str, CatalogueModel]:
    """The models a catalogue file names. Every mistake in it is a ConfigError with its place."""
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the model catalogue {path} cannot be read: {error}") from None
    return {name: _read_model(f"{path}: [{name}]", name, table) for name, table in tables.items()}


def _read_model(where: str, id: str, table: Any) -> CatalogueModel:
    # The id becomes part of a folder's name.
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", id):
        raise ConfigError(f"{where}: an id is lower-case letters, digits, dots and hyphens")
    values = dict(_check_keys(where, table, CatalogueModel))
    for key, valid in (("task", TASKS), ("pooling", ("cls", "mean", "none"))):
        if values[key] not in valid:
            raise ConfigError(f"{where}: {key} is {values[key]!r}, valid: {', '.join(valid)}")
    if values["task"] == "embed" and (values.get("dim", 0) < 1 or values["pooling"] == "none"):
        raise ConfigError(f"{where}: an embedder needs `dim` and a pooling of cls or mean")
    if values["task"] == "late-interaction" and not (
        values.get("dim") and values.get("query_tokens")
    ):
        raise ConfigError(f"{where}: late interaction needs `dim` and `query_tokens`")
    values["scripts"] = tuple(values.get("scripts", ()))
    check_known(f"{where}: unknown script", SCRIPTS, *values["scripts"], kind=ConfigError)
    values["files"] = tuple(
        ModelFile(**_check_keys(f"{where} files[{number}]", file, ModelFile))
        for number, file in enumerate(values["files"])
    )
    for number, file in enumerate(values["files"]):
        if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            said = f"sha256 must be 64 hex digits, not {file.sha256!r}"
            raise ConfigError(f"{where} files[{number}]: {said}")
    if {file.name for file in values["files"]} != {MODEL_FILE, TOKENIZER_FILE}:
        raise ConfigError(f"{where}: `files` must be {MODEL_FILE} and {TOKENIZER_FILE}")
    if "wheel" in values:
        values["wheel"] = Wheel(**_check_keys(f"{where} wheel", values["wheel"], Wheel))
    return CatalogueModel(id=id, **values)


def _check_keys(where: str, table: Any, into: Any) -> Mapping[str, Any]:
    """The table, once it is sure to have the keys of the tuple (but `id`), and no others."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: this must be a table, not {table!r}")
    valid = [name for name in into._fields if name != "id"]
    check_known(f"{where}: unknown key", valid, *table, kind=ConfigError)
    for name in valid:
        if name not in table and name not in into._field_defaults:
            raise ConfigError(f"{where}: `{name}` is missing")
    return table
