"""A backup: one file with all of a store that cannot be derived, and the way back from it.

It is a zip archive of the database, as it was at one moment whoever wrote meanwhile, of the
folder's clew.toml, and of a manifest with the checksum of each. Its last 64 characters are the
SHA-256 of all that stands before them, so that no changed byte goes unnoticed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import glob
import json
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from clew.background import is_running
from clew.config import FILE_NAME as SETTINGS
from clew.errors import InputError, StoreError
from clew.protocols import Progress, ignore_progress
from clew.storage import FOLDER, is_url, locate, log, same_file
from clew.storage.ownership import check_ownership
from clew.storage.tables import Database

FORMAT = 1
_TOP = "clew-backup/"
_MANIFEST = "manifest.json"
_DATABASES = {"sqlite": "store.sqlite", "duckdb": "store.duckdb"}
"""The part that is the database, by what kind it is."""
_MAGIC = {"sqlite": (0, b"SQLite format 3\0"), "duckdb": (8, b"DUCK")}
_PLACE = re.compile(r"\.clew/(clew\.db|[^/]+\.duckdb)|(?!.*\.clew/).*\.(db|duckdb|ddb|sqlite3?)")
"""Where a backup may put the database of a folder by itself."""
_SEAL, _DIGITS = b"clew backup sha256 ", 64
_BLOCK = 1 << 20
_LOGS = ("-wal", "-shm", ".wal")
"""What databases keep beside their file."""
_MEANWHILE = 10_000
"""Rows that others may add to the change log of a store just before it is replaced."""
_COUNTED = {"records": "records", "passages": "chunks", "vectors": "vectors"}
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError),
    *(ValueError, TypeError, AttributeError, RuntimeError, OverflowError),
)
"""What zipfile and json make of bytes that nobody has written so."""

Manifest = dict[str, Any]


def open_database(kind: str, file: Path) -> Database:
    if kind == "duckdb":
        from clew.storage.duckdb_file import DuckDatabase

        return DuckDatabase(file)
    from clew.storage.sqlite import SqliteDatabase

    return SqliteDatabase(file)


# ---------------------------------------------------------------------- write


def write_backup(
    db: Database,
    file: str | Path,
    *,
    root: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Everything of the database, and the settings of the folder `root` whose store it is; what is
    in the backup. It appears under its name when it is whole."""
    from clew import __version__

    file, progress = _check_path(file), progress or ignore_progress
    if same_file(file, db.path):
        raise InputError(f"{file} is the store itself: name another file")
    if file.exists() and not force:
        raise InputError(f"{file} exists: name another file, or say --force (force=True)")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError(f"{file} cannot be a file: its folder is missing, or it is one itself")
    with make_room(file) as folder, _writing(file):
        copy = folder / _DATABASES[db.KIND]
        db.copy_to(copy, progress)
        inside = root is not None and db.path.resolve().is_relative_to(root.resolve())
        manifest: Manifest = {
            "format": FORMAT,
            "clew": __version__,
            "made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "kind": "memory" if root is None else "folder",
            "database": db.KIND,
            "place": (
                db.path.resolve().relative_to(root.resolve()).as_posix()
                if inside and root is not None
                else None
            ),
            **_examine(copy, db.KIND),
        }
        parts = [copy]
        if root is not None and (root / SETTINGS).is_file():
            parts.append(folder / SETTINGS)
            parts[-1].write_bytes((root / SETTINGS).read_bytes())
        made = folder / "backup"
        _pack(made, parts, manifest, progress)
        if file.exists() and not force:
            raise InputError(f"{file} was made by somebody else meanwhile: name another file")
        made.replace(file)
        _flush(file.absolute().parent)
    return manifest


def _examine(file: Path, kind: str) -> dict[str, Any]:
    """What is in a database; a StoreError where it is not sound."""
    with contextlib.closing(open_database(kind, file)) as db:
        if problem := db.verdict():
            raise StoreError(
                f"the database is damaged ({problem}): see `clew doctor`, restore a backup"
            )
        counts = {
            name: int(db.reader.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
            for name, table in _COUNTED.items()
        }
        return {"store": db.store_id, "counts": counts}


def _pack(made: Path, parts: Iterable[Path], manifest: Manifest, progress: Progress) -> None:
    total = sum(part.stat().st_size for part in parts)
    done, manifest["parts"] = 0, {}
    with _create(made) as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for part in parts:
                digest, size = sha256(), 0
                with (
                    part.open("rb") as given,
                    archive.open(f"{_TOP}{part.name}", "w", force_zip64=True) as packed,
                ):
                    while block := given.read(_BLOCK):
                        digest.update(block)
                        size += len(block)
                        packed.write(block)
                        progress("packing", done + size, total)
                done += size
                manifest["parts"][part.name] = {"bytes": size, "sha256": digest.hexdigest()}
            archive.writestr(f"{_TOP}{_MANIFEST}", json.dumps(manifest, indent=2))
            archive.comment = _SEAL + b"0" * _DIGITS
        stream.flush()
        stream.seek(-_DIGITS, os.SEEK_END)
        stream.write(_digest(made, progress))
        stream.flush()
        os.fsync(stream.fileno())


def _digest(file: Path, progress: Progress) -> bytes:
    """The digest of all but the digits at its end."""
    found, size = sha256(), file.stat().st_size - _DIGITS
    left = size
    with file.open("rb") as stream:
        while left > 0 and (block := stream.read(min(_BLOCK, left))):
            found.update(block)
            left -= len(block)
            progress("checking", size - left, size)
    return found.hexdigest().encode()


# ---------------------------------------------------------------------- verify


def is_backup(file: Path) -> bool:
    """Whether it is one, sound or not."""
    with contextlib.suppress(OSError, ValueError):
        if file.is_file():
            with file.open("rb") as stream:
                if stream.read(30 + len(_TOP))[30:] == _TOP.encode():
                    return True
                stream.seek(-min(len(_SEAL) + _DIGITS, file.stat().st_size), os.SEEK_END)
                return stream.read().startswith(_SEAL)
    return False


def read_manifest(file: Path) -> Manifest:
    """What a backup says is in it, unverified."""
    with _reading(file):
        if not is_backup(file):
            raise StoreError(f"{file} is no backup of Clew's: check the path")
        with zipfile.ZipFile(file) as archive:
            return _check_manifest(archive)


def verify_backup(file: str | Path, *, progress: Progress | None = None) -> Manifest:
    """What is in a backup of which every byte is as it was written; a StoreError says what is
    wrong with any other."""
    file = _check_path(file)
    if not file.exists():
        raise InputError(f"there is no {file}: check the path")
    with _reading(file):
        if not is_backup(file):
            raise StoreError(f"{file} is no backup of Clew's: check the path")
        with file.open("rb") as stream:
            stream.seek(-min(len(_SEAL) + _DIGITS, file.stat().st_size), os.SEEK_END)
            seal = stream.read()
        if not seal.startswith(_SEAL):
            raise StoreError(f"{file} is damaged: its end is missing; {_OTHER}")
        sound = seal.removeprefix(_SEAL) == _digest(file, progress or ignore_progress)
        with zipfile.ZipFile(file) as archive:
            manifest = _check_manifest(archive)
            for name in manifest["parts"]:
                for _ in _blocks(archive, name, manifest):
                    pass
        if not sound:
            raise StoreError(f"{file} is damaged, if not in its parts; {_OTHER}")
        return manifest


_OTHER = "take another backup"


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(f"{file}: {why}; may you write there, is the disk full?") from error


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in (None, errno.EINVAL):  # no stream, or a place that cannot be
            raise StoreError(f"{file} is damaged: {why}; {_OTHER}") from error
        raise StoreError(
            f"{error.filename or file}: {why}; is the disk full or failing?"
        ) from error
    except InputError:
        raise
    except _UNREADABLE as error:
        raise StoreError(f"{file} is damaged: {error}; {_OTHER}") from error


def _check_manifest(archive: zipfile.ZipFile) -> Manifest:
    """A ValueError where it is not as Clew writes it: what is in it is obeyed."""
    info = archive.getinfo(f"{_TOP}{_MANIFEST}")
    if info.file_size > _BLOCK:
        raise ValueError("its manifest is too long")
    manifest: Manifest = json.loads(archive.read(info))
    if manifest["format"] > FORMAT:
        raise StoreError(
            f"{archive.filename} was written by a newer Clew ({manifest['clew']}): upgrade with "
            "`pip install -U clew-search`"
        )
    parts: Mapping[str, Any] = manifest["parts"]
    known = {_DATABASES[manifest["database"]], SETTINGS}
    names = sorted([f"{_TOP}{_MANIFEST}", *(f"{_TOP}{name}" for name in parts)])
    place = PurePosixPath(manifest["place"] or ".")
    if (
        not _DATABASES[manifest["database"]] in parts.keys() <= known
        or sorted(archive.namelist()) != names
        or manifest["kind"] not in ("folder", "memory")
        or place.is_absolute()
        or any(name.startswith(".") for name in place.parts if name != FOLDER)
        or set(manifest["counts"]) != set(_COUNTED)
    ):
        raise ValueError("its manifest is not one of Clew's")
    return manifest


def _blocks(archive: zipfile.ZipFile, name: str, manifest: Manifest) -> Iterator[bytes]:
    part, digest = manifest["parts"][name], sha256()
    left = int(part["bytes"])
    try:
        with archive.open(f"{_TOP}{name}") as stream:
            while left >= 0 and (block := stream.read(_BLOCK)):
                left -= len(block)
                digest.update(block)
                yield block
    except (*_UNREADABLE, OSError) as error:
        raise ValueError(f"its part {name} cannot be read ({error})") from error
    if left or digest.hexdigest() != part["sha256"]:
        raise ValueError(f"its part {name} is not as it was written")


# ---------------------------------------------------------------------- restore


def restore_backup(
    file: str | Path,
    folder: str | Path | None = None,
    *,
    db: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Bring the store of a folder back, by default of this one, or a memory as `db`, its file or
    URL. All of the backup is checked before anything is touched. A store that is there is replaced
    with `force` only, in one step, also under those who have it open. Derived indexes are made anew
    by the next search. Gives what was restored, and `into` which file; `aside` is where a damaged
    database went that was there."""
    manifest, progress = verify_backup(file, progress=progress), progress or ignore_progress
    file, kind, part = _check_path(file), manifest["database"], manifest["parts"]
    whole = manifest["kind"] == "folder" and db is None
    if whole and manifest["place"] is None:
        raise InputError(
            f"{file} is of a store outside its folder: say with --db (db=…) where it is to go, and "
            f"set it in {SETTINGS} there"
        )
    home = _check_path("." if folder is None else folder)
    target = home / manifest["place"] if whole else _find_file(db, kind)
    if whole:
        _check_place(manifest["place"], target, kind)
    derived = (home / FOLDER if whole else target.with_name(f"{target.name}{FOLDER}")) / "derived"
    settings = home / SETTINGS if whole and SETTINGS in part else None
    with _reading(file):
        _check_free(target, settings, file, force=force)
        check_ownership(derived.parent, target)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if whole and not target.parent.resolve().is_relative_to(home.resolve()):
            raise InputError(f"{target.parent} leads out of {home}: remove that link first")
        with make_room(target) as beside, zipfile.ZipFile(file) as archive:
            total = sum(each["bytes"] for each in part.values())
            if total > shutil.disk_usage(beside).free:
                raise StoreError(f"{total:,} bytes do not fit on the disk of {target.parent}")
            done = 0
            for name in part:
                with _create(beside / name) as stream:
                    for block in _blocks(archive, name, manifest):
                        stream.write(block)
                        progress("unpacking", done := done + len(block), total)
                    stream.flush()
                    os.fsync(stream.fileno())
            fresh = beside / _DATABASES[kind]
            found = _examine(fresh, kind)
            if any(found[name] != manifest[name] for name in found):
                raise ValueError("its database is not the one that its manifest tells of")
            aside = _put(fresh, target, kind)
            if settings is not None:
                with make_room(settings) as near:
                    shutil.copyfile(beside / SETTINGS, near / SETTINGS)
                    (near / SETTINGS).replace(settings)
        if derived.exists():
            with make_room(derived) as beside:  # gone in one step: no half of it is ever opened
                derived.rename(beside / derived.name)
    return {**manifest, "into": str(target), "aside": None if aside is None else str(aside)}


def _find_file(db: str | Path | None, kind: str) -> Path:
    if not is_url(db):
        return _check_path("memory.db" if db is None else db)
    place = locate(str(db), Path())
    if place.server:
        raise InputError(
            f"a backup is restored as a file: give one, then copy it into {place.name} with `clew "
            "migrate --from embedded:///FILE --to URL`"
        )
    if (place.scheme == "duckdb") != (kind == "duckdb"):
        raise InputError(
            f"the backup is of {'DuckDB' if kind == 'duckdb' else 'SQLite'}: restore it as such, "
            "then use `clew migrate`"
        )
    return place.file


def _check_place(place: str, target: Path, kind: str) -> None:
    """A backup may be somebody else's: it replaces databases, with `force` too."""
    start, magic = _MAGIC[kind]
    foreign = False
    if place != f"{FOLDER}/clew.db" and os.path.lexists(target):
        foreign = target.is_symlink() or not target.is_file()
        if not foreign:
            try:
                with target.open("rb") as stream:
                    foreign = not stream.read(start + len(magic)).endswith(magic)
            except OSError as error:
                raise StoreError(
                    f"{target} cannot be read ({error.strerror}): is the disk well? Nothing was "
                    "replaced; restore to another place with --db (db=…)"
                ) from error
    if foreign or not _PLACE.fullmatch(place):
        raise InputError(
            f"the backup would be {target}, which is no database of Clew's: say with --db (db=…) "
            "where it is to go"
        )


def _check_free(target: Path, settings: Path | None, file: Path, *, force: bool) -> None:
    if force:
        return
    if any(_beside(target)):
        raise InputError(
            f"{target} is there already: say --force (force=True) to replace it with the backup, "
            "or restore to another place"
        )
    if settings is not None and settings.exists():
        with zipfile.ZipFile(file) as archive:
            if archive.read(f"{_TOP}{SETTINGS}") != settings.read_bytes():
                raise InputError(
                    f"{settings} is there already and says something else: say --force "
                    "(force=True) to replace it with that of the backup, or move it away"
                )


def _beside(target: Path) -> list[Path]:
    """The database and its logs, as far as there are any."""
    every = (target, *(target.with_name(target.name + suffix) for suffix in _LOGS))
    return [file for file in every if os.path.lexists(file)]


def _put(fresh: Path, target: Path, kind: str) -> Path | None:
    """Take the place of what is there, in one step; where that cannot be opened any more, it is
    kept under another name, which is given."""
    kept = None
    if target.exists():
        try:
            with contextlib.closing(open_database(kind, target)) as live:
                with contextlib.closing(open_database(kind, fresh)) as db, db.transaction() as new:
                    log.advance(new, log.head(live.reader)[0] + _MEANWHILE)
                live.replace_with(fresh)
            return None
        except StoreError as error:
            if "damaged" not in str(error):
                raise
    if there := _beside(target):
        kept = next(
            each
            for number in range(1, 10_000)
            if not _beside(each := target.with_name(f"{target.name}.damaged-{number}"))
        )
        if target in there:
            os.link(target, kept)  # under both names, until the new one takes its own
        for each in there:
            if each != target:  # a log of another database must not stay beside the new one
                each.replace(kept.with_name(kept.name + each.name.removeprefix(target.name)))
    fresh.replace(target)
    _flush(target.absolute().parent)
    return kept


# ---------------------------------------------------------------------- files


@contextlib.contextmanager
def make_room(file: Path) -> Iterator[Path]:
    """A folder beside a file that is going to be written; those of killed processes go as well."""
    for old in file.parent.glob(f".{glob.escape(file.name)}.*.part"):
        process = old.name.split(".")[-3]
        if process.isdigit() and not is_running(int(process)):
            shutil.rmtree(old, ignore_errors=True)
    try:
        made = tempfile.mkdtemp(".part", f".{file.name}.{os.getpid()}.", file.absolute().parent)
    except OSError as error:
        raise StoreError(
            f"cannot write to {file.absolute().parent}: {error.strerror}; name another folder"
        ) from error
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _check_path(given: object) -> Path:
    try:
        path = Path(given).expanduser()  # type: ignore[arg-type]
        path.resolve()
        path.exists()
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise InputError(f"{given!r:.100} is no path: {error}"[:300]) from error
    return path


def _create(file: Path) -> BinaryIO:
    """A new file of the user's own."""
    return os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def _flush(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
