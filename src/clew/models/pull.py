"""Model files on this machine: fetched once, hashed, and from then on found by a cheap look.

A model lies in `<models_dir>/<id>-<first 12 hex of its hash>/`. That folder appears by a rename
when every file in it has been verified, so a killed pull never looks like a whole one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import platformdirs

from clew.errors import ConfigError, ModelError, nearest
from clew.models.catalogue import CatalogueModel, catalogue, find_model, identity
from clew.protocols import Progress

__all__ = ["installed", "model_path", "models_dir", "pull", "remove", "verify"]

MARKER = ".verified"
LOCK_SECONDS = 900.0  # as long as another process may take over a slow line


def models_dir() -> Path:
    """Where models are kept: CLEW_MODELS, or a folder in the user's cache."""
    named = os.environ.get("CLEW_MODELS")
    return (
        Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("clew"), "models")
    )


def model_path(model: str | CatalogueModel) -> Path | None:
    """The model's folder if it is here and whole. Looks at names and sizes, and hashes nothing."""
    model = _model(model)
    folder = _target(model)
    return folder if _whole(model, folder) else None


def installed() -> dict[str, Path]:
    """The models of the catalogue that are here, by id."""
    paths = {model.id: model_path(model) for model in catalogue().values()}
    return {name: path for name, path in paths.items() if path is not None}


def verify(model: str | CatalogueModel) -> bool:
    """Whether the model is here and every byte of it is right. Reads all of it: for `doctor`."""
    from clew.models.origins import file_digest

    model = _model(model)
    folder = model_path(model)
    return folder is not None and all(
        file_digest(folder / file.name) == file.sha256 for file in model.files
    )


def remove(model: str | CatalogueModel) -> bool:
    """Delete the model, also under hashes of earlier catalogues. False: there was nothing."""
    model = _model(model)
    root = models_dir()
    if not root.is_dir():
        return False
    whole = re.compile(re.escape(model.id) + r"-[0-9a-f]{12}")
    with _lock(model):
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
    model = _model(model)
    if (present := model_path(model)) is not None:
        return present
    # Late: every search asks for `model_path`, and should not load urllib and ssl for it.
    from clew.models.origins import ORIGINS

    if origins is None:
        origins = tuple(ORIGINS) if folder is None else ("local",)
    for name in origins:
        if name not in ORIGINS:
            raise ConfigError(f"unknown origin {name!r}: {nearest(name, ORIGINS)}")
    if folder is None:
        folder = os.environ.get("CLEW_MODELS_FROM") or None
    try:
        models_dir().mkdir(parents=True, exist_ok=True)
        with _lock(model):
            # Another process may have brought it while this one waited.
            if (present := model_path(model)) is not None:
                return present
            return _pull(
                model,
                origins=origins,
                offline=offline,
                folder=None if folder is None else Path(folder).expanduser(),
                progress=progress or _silent,
            )
    except OSError as error:
        raise ModelError(
            f"models cannot be kept in {models_dir()}: {error}. "
            "Set CLEW_MODELS to a folder that can be written"
        ) from error


def _pull(
    model: CatalogueModel,
    *,
    origins: Sequence[str],
    offline: bool,
    folder: Path | None,
    progress: Progress,
) -> Path:
    from clew.models.origins import ORIGINS, Place

    staging, target = _staging(model), _target(model)
    place = Place(staging / "files", staging / "scratch", folder, progress)
    place.scratch.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    for name in origins:
        if offline and name != "local":
            failures.append(f"{name}: not tried (offline)")
            continue
        if name == "local" and folder is None and len(origins) > 1:
            continue  # nobody asked for it, so its absence is no news
        shutil.rmtree(place.files, ignore_errors=True)
        place.files.mkdir()
        try:
            ORIGINS[name](model, place)
            _check(model, place.files)
        except (OSError, ModelError) as error:
            failures.append(f"{name}: {error}")
            continue
        _settle(model, place.files, target)
        shutil.rmtree(staging, ignore_errors=True)
        return target
    shutil.rmtree(place.files, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty: the next pull goes on from there
        place.scratch.rmdir()
        staging.rmdir()
    raise ModelError(
        "\n  ".join([f"model {model.id!r} could not be fetched:", *failures])
        + f"\nTo use files you have: `clew models pull {model.id} --from FOLDER` with "
        f"{_sentence([file.name for file in model.files])} in FOLDER. "
        "To use models of another machine: copy its models folder and set CLEW_MODELS to it. "
        "Without a model, Clew finds by words alone"
    )


def _check(model: CatalogueModel, files: Path) -> None:
    from clew.models.origins import file_digest

    for file in model.files:
        path = files / file.name
        got = file_digest(path)
        if got != file.sha256:
            path.unlink()
            raise ModelError(f"{file.name} has sha256 {got}, expected {file.sha256}: refused")


def _settle(model: CatalogueModel, files: Path, target: Path) -> None:
    """Turn the verified files into the model's folder, in one step."""
    (files / MARKER).write_text(
        "".join(f"{file.sha256}  {file.name}\n" for file in model.files), encoding="ascii"
    )
    for path in files.iterdir():
        # On disk before the rename is: a power cut must not leave a marker over empty files.
        with path.open("rb+") as opened:
            os.fsync(opened.fileno())
    shutil.rmtree(target, ignore_errors=True)  # what is there is not whole, or we were not here
    files.rename(target)


def _whole(model: CatalogueModel, folder: Path) -> bool:
    try:
        return (folder / MARKER).is_file() and all(
            (folder / file.name).stat().st_size == file.size for file in model.files
        )
    except OSError:
        return False


def _model(model: str | CatalogueModel) -> CatalogueModel:
    return find_model(model) if isinstance(model, str) else model


def _target(model: CatalogueModel) -> Path:
    return models_dir() / identity(model).replace("@", "-")


def _staging(model: CatalogueModel) -> Path:
    """Beside the target, so that the last step is a rename; its name is fixed, to resume from."""
    return models_dir() / f".{_target(model).name}.part"


@contextlib.contextmanager
def _lock(model: CatalogueModel) -> Iterator[None]:
    import filelock

    path = models_dir() / f".{model.id}.lock"
    try:
        with filelock.FileLock(path, timeout=LOCK_SECONDS):
            yield
    except filelock.Timeout:
        raise ModelError(
            f"another process has been fetching {model.id!r} for {LOCK_SECONDS / 60:.0f} minutes: "
            f"wait for it, or end it and try again"
        ) from None


def _silent(stage: str, done: int, total: int) -> None: ...


def _sentence(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
