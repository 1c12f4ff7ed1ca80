"""clew init, index, reembed, exocortex: files become records."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clew.cli import options
from clew.cli.config import write_setting, write_template
from clew.cli.terminal import CommandOutput, ReportCommand, console, print_table, show_progress
from clew.cli.view import shorten_path
from clew.config import FILE_NAME
from clew.engine import find_root, open_engine
from clew.errors import InputError, counted
from clew.storage import FOLDER, has_store
from clew.storage.ownership import open_private

if TYPE_CHECKING:
    from clew.ingest.sync import IndexReport

MULTILINGUAL = "hf:intfloat/multilingual-e5-small"
LEAST_SCRIPT = 0.5
"""Below it, of a folder's letters, the default model is not the one to use."""
SAMPLED_FILES, SAMPLED_BYTES, MOST_SAMPLED = 100, 2_000, 1 << 20
SAMPLED_SUFFIXES = (".md", ".txt", ".html", ".rst", ".org", ".csv")
MOST_FLAWS, MOST_KINDS = 10, 8
"""Files that were skipped, and kinds that are not read, as many as are listed."""


@click.command(cls=ReportCommand)
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--profile",
    type=click.Choice(["default", "athena"]),
    help="What the settings start from: athena is for that workspace layout.",
)
def init(folder: Path, profile: str | None) -> CommandOutput:
    """Make a store in FOLDER, with a clew.toml that explains every setting.

    Nothing is indexed yet. To undo it, delete .clew and clew.toml.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}: make it first")
    verb = "is there already" if has_store(folder) else "made"
    open_engine(folder).close()
    settings = folder / FILE_NAME
    if not settings.exists():
        write_template(settings, profile or "default")
    elif profile:
        write_setting(folder, "profile", profile)
    _keep_out_of_git(folder)
    said = [f"Store {verb}: {folder / FOLDER}. Settings: {settings}."]
    data = {"store": str(folder / FOLDER), "config": str(settings)}
    if (share := _share_of_script(folder)) < LEAST_SCRIPT:
        data["suggested_model"] = MULTILINGUAL
        said += [
            f"Only {share:.0%} of what is written here is in the script that the default model "
            "knows: other scripts are found by their words alone. For their meaning as well:",
            f"  clew config --store {shlex.quote(str(folder))} model {MULTILINGUAL}",
        ]
    return data, [*said, f"Next: clew index {shlex.quote(str(folder))}"]


def _share_of_script(folder: Path) -> float:
    """How much of a sample of the folder's texts the default model can read."""
    from clew.ingest.walk import HeldFolder, Skip, walk
    from clew.models import DEFAULT_MODEL, traits
    from clew.text.analyser import known_share

    text = []
    with HeldFolder(folder) as held:
        for item in walk(folder, max_bytes=MOST_SAMPLED):
            if isinstance(item, Skip) or Path(item.path).suffix.lower() not in SAMPLED_SUFFIXES:
                continue
            with contextlib.suppress(OSError, InputError):
                data = held.read(item.path, max_bytes=MOST_SAMPLED)
                text.append(data[:SAMPLED_BYTES].decode("utf-8", "ignore"))
            if len(text) >= SAMPLED_FILES:
                break
    return known_share(" ".join(text), traits(DEFAULT_MODEL).scripts)


def _keep_out_of_git(folder: Path | None) -> None:
    """An index does not belong into version control."""
    if folder is not None and not (ignore := folder / FOLDER / ".gitignore").exists():
        with (
            contextlib.suppress(FileExistsError),  # a link that leads nowhere
            open(ignore, "x", encoding="utf-8", opener=open_private) as file,
        ):
            file.write("*\n")


@click.command(cls=ReportCommand)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@options.store_folder
@click.option("--embed/--no-embed", default=True, help="Also make vectors (the slow part).")
@click.option("--force", is_flag=True, help="Read files again that have not changed.")
@click.option("--offline", is_flag=True, help="Never try to fetch model weights.")
@click.option("--model", help="Embedder for this run; see clew models list.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that read and embed.")
@click.option(
    "--executor", metavar="dask://HOST:PORT", help="A Dask cluster whose workers do that instead."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, no report.")
def index(
    paths: tuple[Path, ...],
    store: Path | None,
    offline: bool,
    model: str | None,
    quiet: bool,
    **chosen: Any,
) -> CommandOutput:
    """Bring the index up to date with the files.

    PATHS are folders or files; without them, all folders the store knows. Text comes first, so
    keyword search works within seconds; vectors follow. Only what changed is
    read again, and an interrupted run goes on where it stopped. .gitignore and .clewignore hold;
    links out of a folder are not followed.

    Example: clew index ~/notes ~/projects/docs
    """
    place = _choose_store(store, paths)
    for path in paths:  # what a store has may be gone; none is made for what is not there
        if not path.exists() and not has_store(place):
            raise InputError(f"there is no {str(path)!r} to index: check the path")
    overrides: dict[str, Any] = {"offline": True} if offline else {}
    if model:
        overrides["model"] = model
    with open_engine(place, **overrides) as engine:
        _keep_out_of_git(engine.root)
        with options.resumable("clew index"), show_progress(shown=not quiet) as progress:
            report = engine.index(list(paths), progress=progress, **chosen)
        root = engine.root
    return report.to_dict(), lambda: None if quiet else print_report(report, root)


def _choose_store(store: Path | None, paths: tuple[Path, ...]) -> Path:
    """The store a call of `index` means: the one named, one that is there, or a new one. That of
    this folder is not meant by paths that it knows nothing of."""
    if store is not None:
        return store
    folders = [path if path.is_dir() else path.parent for path in paths]
    for start in folders:
        if (root := find_root(start)) is not None:
            return root
    here = find_root()
    if not folders:
        return here or Path()
    if here is not None:
        with open_engine(here, create=False) as engine:
            known = [(here / root).resolve() for root in engine.store.files.roots().values()]
        if any(folders[0].resolve().is_relative_to(root) for root in known):
            return here
    return folders[0]


def print_report(done: IndexReport, root: Path | None) -> None:
    rows = {name: f"{len(getattr(done, name)):,}" for name in ("added", "changed", "moved")}
    rows |= {"removed": f"{len(done.removed):,}", "unchanged": f"{done.unchanged:,}"}
    rows["skipped"] = f"{len(done.skipped):,}"
    if done.rows:
        rows["rows"] = f"{done.rows:,}, each a record of its own"
    rows["embedded"] = counted(done.embedded, "passage")
    if done.encoded:
        rows["encoded"] = f"{counted(done.encoded, 'passage')}, for late interaction"
    if done.unread:
        kinds = sorted(done.unread.items(), key=lambda kind: (-kind[1], kind[0]))
        named = ", ".join(f"{suffix} {count:,}" for suffix, count in kinds[:MOST_KINDS])
        rows["not text"] = named + (" …" if len(kinds) > MOST_KINDS else "")
    print_table(("", ""), rows.items(), header=False)
    out = console()
    flaws = (("skipped", done.skipped, "yellow"), ("warning", done.warnings, "dim"))
    for title, named_files, style in flaws:
        for path, why in named_files[:MOST_FLAWS]:
            out.print(f"{title}: {path}: {why}", style=style, overflow="fold")
        if (more := len(named_files) - MOST_FLAWS) > 0:
            out.print(f"… and {more} more; --json lists all", style=style)
    for note in done.notes:
        out.print(f"! {note}", style="yellow", soft_wrap=True)
    said = ", ".join(f"{stage} {s:.1f} s" for stage, s in done.seconds.items())
    if not done.empty:
        found, store = find_root(), ""
        if root is not None and (found is None or not found.samefile(root)):
            store = f"--store {shlex.quote(shorten_path(root.absolute()))} "
        said += f" · search it with: clew search {store}WORDS"
    out.print(said, style="dim")


@click.command(cls=ReportCommand)
@click.argument("model", required=False)
@options.store_folder
@options.memory_instead
def reembed(model: str | None, store: Path | None, db: Path | str | None) -> CommandOutput:
    """Make vectors anew with another model, and use it from now on.

    Vectors of different models are never mixed: until a record has been migrated, only its words
    are searched. The run can be interrupted and goes on when called again.

    A memory (--db) has no settings of its own: name the model in CLEW_MODEL from then on.
    """
    chosen: dict[str, Any] = {"model": model} if model else {}
    of = f" --db {shlex.quote(options.show_memory(db))}" if db else ""
    again = f"clew reembed {model or ''}{of}".rstrip()
    with options.open_existing(store, db=db, **chosen) as engine:
        whole = False
        try:
            with options.resumable(again), show_progress() as progress:
                count = engine.embed(progress=progress)
            whole = True
        finally:  # from its first vector on it is the one to go on with
            begun = whole or engine.store.indexes.coverage(engine.model) > 0
            if model and engine.root is not None and begun:
                write_setting(engine.root, "model", model)
        name = engine.embedder.model
    said = f"{counted(count, 'passage')} embedded with {name}."
    return {"embedded": count, "model": name}, [said]


# ---------------------------------------------------------------------- exocortex


@click.group()
def exocortex() -> None:
    """Search Wikipedia's abstracts as well: build the file that takes, and look at it."""


@exocortex.command(cls=ReportCommand)
@click.argument("dump")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to make. Default: .clew/exocortex.db."
)
@options.store_folder
def build(dump: str, out: Path | None, store: Path | None) -> CommandOutput:
    """Make an exocortex from DUMP, a dump of Wikipedia abstracts.

    XML (enwiki-…-abstract.xml) or JSON lines with title, abstract and url; plain, .gz or .bz2; or
    - for standard input. The old file stays in place until the new one is whole. Of articles with
    the same title the last one counts.

    Example: clew exocortex build enwiki-latest-abstract.xml.gz
    """
    from clew.ingest.wikipedia import build_exocortex

    with show_progress() as progress:
        report = build_exocortex(dump, out or _default_exocortex(store), progress=progress)
    articles = counted(report.articles, "article")
    said = [f"{articles} in {report.file}, {report.bytes / 1e6:,.1f} MB."]
    if report.replaced:
        said.append(f"{counted(report.replaced, 'article')} replaced by a later one of that title.")
    if report.skipped:
        said.append(f"{report.skipped:,} skipped; the first:")
        said += [f"  {example}" for example in report.examples]
    return report.to_dict(), said


@exocortex.command("status", cls=ReportCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@options.store_folder
def exocortex_status(file: Path | None, store: Path | None) -> CommandOutput:
    """How many articles there are, from which dump, built when."""
    from clew.sources.sqlite import describe_exocortex

    facts = describe_exocortex(file or _default_exocortex(store))
    size = f"{facts['bytes'] / 1e6:,.1f} MB"
    where = f"{counted(facts['articles'], 'article')} in {facts['file']}"
    return facts, [where, f"from {facts['from']}, built {facts['built']}, {size}"]


def _default_exocortex(store: Path | None) -> Path:
    from clew.sources.sqlite import EXOCORTEX  # not for every other command

    return options.existing_root(store) / EXOCORTEX
