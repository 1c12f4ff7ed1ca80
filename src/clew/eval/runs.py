"""Runs as files in TREC's form, under names that say what they are of."""

from __future__ import annotations

import itertools
import re
import urllib.parse
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clew.config import Config, all_settings, profile
from clew.errors import InputError
from clew.eval.datasets import Dataset
from clew.eval.harness import Run

__all__ = ["run_name", "write_run"]

LONGEST = 80
"""Bytes of settings in a name: of more, a hash must do."""
_WITHOUT_EFFECT = frozenset(
    {"threads", "offline", "model_url", "busy_seconds", "synchronous", "max_file_mb"}
)
"""Settings that decide nothing about what is found in a store that is there, or are nobody's
business: an address may hold a password."""


def run_name(
    dataset: Dataset,
    config: Config,
    *,
    limit: int | None = None,
    syntax: bool = False,
    store: Path | None = None,
) -> str:
    """What a run is of, but for its mode: `scifact-train-first100-rerank_blend=1`.

    The collection, its split, how many queries, somebody's own `store`, every setting that is not
    the default.
    """
    parts = [dataset.name]
    if dataset.split != "test":
        parts.append(dataset.split)
    if limit is not None:
        parts.append(f"first{limit}")
    if syntax:
        parts.append("syntax")
    if store is not None:
        place = store.resolve()
        parts.append(f"{place.name}-{_digest(str(place))}")  # many a folder is called notes
    if changed := _changed(config):
        parts.append(
            changed if len(changed.encode()) <= LONGEST else f"settings-{_digest(changed)}"
        )
    return re.sub(r"[^\w.,=+@-]+", "_", "-".join(parts))


def _changed(config: Config) -> str:
    default, shipped = Config(), profile(config.profile)
    values = {s.name: getattr(config, s.name) for s in all_settings()}
    return "-".join(
        f"{name}={_shown(value)}"
        for name, value in values.items()
        if name not in _WITHOUT_EFFECT
        and value != getattr(default, name)
        and not (name in shipped and value == shipped[name])
    )


def _shown(value: Any) -> str:
    """A table of anything but numbers is a hash: what a source is told may hold a password too."""
    if isinstance(value, Mapping):
        if all(isinstance(number, (int, float)) for number in value.values()):
            return ",".join(f"{key}={_shown(value[key])}" for key in sorted(value))
        return _digest(repr(sorted(value.items())))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def write_run(run: Run, file: Path) -> Path:
    """A run in TREC's form: query Q0 document rank score tag; and the file it is in.

    Columns are parted by blanks, so blanks (and %) in ids are written as %20 and the like. Scores
    fall with the rank and say nothing else: evaluators sort by them. Another run of this name is
    never overwritten: the new one gets a number.
    """
    text = "".join(
        f"{_word(query)} Q0 {_word(name)} {rank} {1 / rank:.8f} clew-{run.mode}\n"
        for query, ids in run.ranked.items()
        for rank, name in enumerate(ids, 1)
    )
    stem = file.name.removesuffix(".run")
    others = (file.with_name(f"{stem}.{number}.run") for number in itertools.count(2))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return next(place for place in itertools.chain([file], others) if _written(text, place))
    except OSError as error:
        raise InputError(f"the run cannot be written to {file}: {error}") from error


def _written(text: str, file: Path) -> bool:
    """Whether the file holds this text now."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        return file.read_bytes() == text.encode()
    return True


def _word(id: str) -> str:
    return re.sub(r"[\s%]", lambda blank: urllib.parse.quote(blank[0]), id)
