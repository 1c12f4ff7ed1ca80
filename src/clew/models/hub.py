"""Models that no catalogue names: `hf:OWNER/NAME`, run as their own configuration says.

What a repository of the Hugging Face hub says of itself (pooling, prefixes, dimension, longest
text) becomes an entry like those of the catalogue. It is kept beside the weights with the hash of
every file as it was at the first pull: whatever else comes later under that name is refused.

An ONNX graph runs as the catalogue's models do; a repository with safetensors alone needs PyTorch
(the extra `gpu`). Code of a repository is never run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clew.errors import ModelError
from clew.models.catalogue import (
    MODEL_FILE,
    TOKENIZER_FILE,
    TORCH_FILE,
    CatalogueModel,
    ModelFile,
    file_stem,
    models_dir,
)
from clew.models.providers import find_card
from clew.protocols import Progress, ignore_progress
from clew.trust import replace_file

PREFIX = "hf:"
CARD_BYTES = 4 << 20
"""Of a file of configuration, at most."""
GRAPHS = ("onnx/model_quantized.onnx", "onnx/model.onnx", "model_quantized.onnx", "model.onnx")
"""Where exporters put a graph; eight bits first, as with Clew's own models."""
CONFIG_FILE = "config.json"
QUERY_PROMPTS = ("query", "search_query")
DOCUMENT_PROMPTS = ("document", "passage", "search_document", "corpus")
UNRELATED = (
    "How do I reset the password of my bank account?",
    "The recipe asks for two eggs, flour and a pinch of salt.",
    "Which planets of the solar system have rings?",
    "The train to the coast leaves at a quarter past nine.",
    "What causes a diesel engine to overheat?",
    "She plays the second violin in a small orchestra.",
    "When was the printing press invented?",
    "Tomatoes need a lot of sun and should be watered in the morning.",
    "Why does a compiler reorder instructions?",
    "The committee moved the vote on the new bridge to Thursday.",
    "How long does a broken wrist take to heal?",
    "Whales breathe air and give birth to live young.",
)
"""Texts that have nothing to do with each other."""
NONSENSE = AttributeError, LookupError, RecursionError, TypeError, ValueError
"""What comes of JSON that says something else than it should."""


def is_hub(spec: str) -> bool:
    return spec.startswith(PREFIX)


def find_endpoint() -> str:
    """The hub, or the mirror that HF_ENDPOINT names, as in HF's own tools."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if "@" in endpoint:  # urllib does not log in by it, and errors would show it
        raise ModelError("HF_ENDPOINT names a user: leave that out, and put the token in HF_TOKEN")
    if not endpoint.startswith(("https://", "http://")):
        raise ModelError(f"HF_ENDPOINT = {endpoint!r:.100} is no address: write https://HOST")
    return endpoint


def read_entry(spec: str) -> CatalogueModel | None:
    """What was pulled under this name; None: nothing was yet."""
    file = _entry_file(spec)
    return _read_table(file) if file.exists() else None


def _read_table(file: Path) -> CatalogueModel:
    try:
        table = json.loads(file.read_text("utf-8"))
        files = tuple(ModelFile(**each) for each in table.pop("files"))
        table["scripts"] = tuple(table["scripts"])
        return CatalogueModel(**table, files=files)
    except (OSError, *NONSENSE) as error:
        raise ModelError(
            f"{file} cannot be read ({error}): delete it, `clew models pull` makes it anew"
        ) from error


def write_entry(entry: CatalogueModel) -> None:
    table = {**entry._asdict(), "files": [each._asdict() for each in entry.files]}
    with replace_file(_entry_file(entry.id), mode=0o666) as opened:  # less the umask
        opened.write(json.dumps(table, indent=1).encode())


def forget_entry(spec: str) -> None:
    _entry_file(spec).unlink(missing_ok=True)


def list_entries() -> list[CatalogueModel]:
    """All that were pulled from the hub, by name."""
    files = sorted(models_dir().glob("hf--*.json")) if models_dir().is_dir() else []
    return [_read_table(file) for file in files]


def split_spec(spec: str) -> tuple[str, str]:
    """(repository, the file of it that is asked for or "") of `hf:OWNER/NAME[/FILE]`."""
    parts = spec.removeprefix(PREFIX).split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
        raise ModelError(f"{spec!r} names no model: hf:OWNER/NAME, as its page on the hub does")
    return "/".join(parts[:2]), "/".join(parts[2:])


def _entry_file(spec: str) -> Path:
    split_spec(spec)
    return models_dir() / f"{file_stem(spec)}.json"


# ---------------------------------------------------------------- what a repository says


class Repository:
    """A repository of the hub at one revision."""

    def __init__(self, spec: str):
        self.name, self.wanted = split_spec(spec)
        self.endpoint = find_endpoint()
        said = self._json(f"{self.endpoint}/api/models/{self.name}")
        self.revision = str(said.get("sha") or "main")
        self.files = {str(each.get("rfilename")) for each in said.get("siblings", ())}
        self.licence = str((said.get("cardData") or {}).get("license") or "unknown")

    def url(self, file: str) -> str:
        return f"{self.endpoint}/{self.name}/resolve/{self.revision}/{file}"

    def read_json(self, file: str) -> Mapping[str, Any]:
        """A file of configuration; empty where there is none."""
        return self._json(self.url(file)) if file in self.files else {}

    def read_list(self, file: str) -> list[Any]:
        found = json.loads(self._get(self.url(file))) if file in self.files else []
        return found if isinstance(found, list) else []

    def _json(self, url: str) -> Mapping[str, Any]:
        data = self._get(url)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            what = "a web page" if data.lstrip()[:1] == b"<" else "no JSON object"
            raise ModelError(
                f"{url} answered with {what}: a proxy or a page to log in may stand before the hub"
            )
        return found

    def _get(self, url: str) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError

        from clew.models.download import open_url

        try:
            with open_url(url) as response:
                data: bytes = response.read(CARD_BYTES + 1)
        except HTTPError as error:
            why = {
                401: "it does not exist, or wants HF_TOKEN",
                403: "its terms must be accepted on its page, and HF_TOKEN set",
                404: "there is no such model",
            }.get(error.code, str(error.reason))
            raise ModelError(f"{url} answered {error.code}: {why}") from None
        except (OSError, HTTPException) as error:
            raise ModelError(f"{self.endpoint} cannot be reached: {error}") from None
        if len(data) > CARD_BYTES:
            raise ModelError(f"{url} is larger than {CARD_BYTES >> 20} MB: it is no configuration")
        return data


class _Card(NamedTuple):
    """What a repository says of how its model is run."""

    pooling: Literal["cls", "mean"]
    dim: int
    max_tokens: int
    query_prefix: str
    document_prefix: str


def read_card(repository: Repository) -> _Card:
    config = repository.read_json(CONFIG_FILE)
    pooling: Literal["cls", "mean"] = "mean"
    dim = int(config.get("hidden_size") or config.get("dim") or 0)
    for module in repository.read_list("modules.json"):
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            chosen = repository.read_json(f"{module['path']}/config.json")
            modes = [name for name, on in chosen.items() if name.startswith("pooling_mode_") and on]
            if modes == ["pooling_mode_cls_token"]:
                pooling = "cls"
            elif modes != ["pooling_mode_mean_tokens"]:
                raise ModelError(f"{repository.name} pools by {modes}: Clew takes cls or mean")
            dim = int(chosen.get("word_embedding_dimension") or dim)
        elif kind not in ("Transformer", "Normalize"):
            raise ModelError(
                f"{repository.name} has a layer {kind} after its transformer, which Clew does not "
                "run: choose a model without"
            )
    prompts = repository.read_json("config_sentence_transformers.json").get("prompts") or {}
    known = find_card(repository.name)  # E5 and others say it in prose alone
    first = repository.read_json("sentence_bert_config.json").get("max_seq_length")
    longest = repository.read_json("tokenizer_config.json").get("model_max_length")
    places = config.get("max_position_embeddings")
    if places and config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        places -= 2  # they begin to count at the number of the padding
    limits = [int(n) for n in (first, longest, places) if isinstance(n, int | float) and n < 1e6]
    if not dim:
        raise ModelError(f"{repository.name} does not say how long its vectors are")
    return _Card(
        pooling,
        dim,
        min(limits, default=512),
        *(
            next((str(prompts[name]) for name in names if prompts.get(name)), role.prefix)
            for names, role in (
                (QUERY_PROMPTS, known.query),
                (DOCUMENT_PROMPTS, known.document),
            )
        ),
    )


# ---------------------------------------------------------------- the first pull


def choose_files(repository: Repository) -> list[tuple[str, str]]:
    """(its name here, its path in the repository) of all that is needed, the weights first."""
    if TOKENIZER_FILE not in repository.files:
        raise ModelError(f"{repository.name} has no {TOKENIZER_FILE}: Clew cannot read its words")
    wanted = [repository.wanted] if repository.wanted else list(GRAPHS)
    graph = next((path for path in wanted if path in repository.files), None)
    if graph is not None:
        data = [path for path in (f"{graph}_data", f"{graph}.data") if path in repository.files]
        weights = [(MODEL_FILE, graph), *((Path(path).name, path) for path in data)]
    elif repository.wanted:
        there = ", ".join(sorted(file for file in repository.files if file.endswith(".onnx")))
        raise ModelError(f"{repository.name} has no {repository.wanted}: it has {there or 'none'}")
    elif TORCH_FILE in repository.files:
        if not (find_spec("torch") and find_spec("transformers")):
            raise ModelError(
                f"{repository.name} has no ONNX graph, and PyTorch is not here to run it: "
                "pip install 'clew-search[gpu]', or choose a model with a graph"
            )
        weights = [(TORCH_FILE, TORCH_FILE), (CONFIG_FILE, CONFIG_FILE)]
    else:
        raise ModelError(
            f"{repository.name} has neither an ONNX graph nor {TORCH_FILE}: choose another model"
        )
    return [*weights, (TOKENIZER_FILE, TOKENIZER_FILE)]


def pull_first(spec: str, *, progress: Progress | None) -> CatalogueModel:
    """Fetch a model under this name for the first time, and note what it is."""
    from clew.models import load_entry
    from clew.models.download import settle

    staging = models_dir() / f".{file_stem(spec)}.first"
    staging.mkdir(parents=True, exist_ok=True)
    try:
        entry = _fetch(Repository(spec), spec, staging, progress or ignore_progress)
    except NONSENSE as error:
        raise ModelError(
            f"what the hub says of {spec} makes no sense ({error}): choose another model"
        ) from error
    settle(entry, staging)
    try:
        entry = entry._replace(least_cosine=_gauge(load_entry(entry)))
    except ModelError:
        shutil.rmtree(entry.folder, ignore_errors=True)
        raise
    write_entry(entry)
    return entry


def _fetch(repository: Repository, spec: str, staging: Path, report: Progress) -> CatalogueModel:
    from clew.models.download import file_digest, pull_file

    card, chosen = read_card(repository), choose_files(repository)
    files = []
    for name, path in chosen:
        pull_file(repository.url(path), staging / name, progress=report)
        sha, size = file_digest(staging / name), (staging / name).stat().st_size
        files.append(ModelFile(name, sha, size, hub=path))
    return CatalogueModel(
        spec,
        "embed",
        tuple(files),
        card.max_tokens,
        card.pooling,
        dim=card.dim,
        query_prefix=card.query_prefix,
        document_prefix=card.document_prefix,
        licence=repository.licence,
        description=f"{repository.name} of the hub, as it was at {repository.revision[:12]}.",
        hub=repository.name,
        revision=repository.revision,
    )


def _gauge(embedder: Any) -> float:
    """The cosine that nine of ten pairs of unrelated texts stay below."""
    import numpy as np

    texts = embedder.embed_documents(UNRELATED)
    queries = np.stack([embedder.embed_query(text) for text in UNRELATED])
    pairs = (queries @ texts.T)[~np.eye(len(UNRELATED), dtype=bool)]
    return round(float(np.clip(np.quantile(pairs, 0.9), 0.0, 0.95)), 3)
