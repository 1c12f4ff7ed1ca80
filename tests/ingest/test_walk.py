from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.errors import InputError
from clew.ingest.walk import DiskFile, Skip, walk

ROOM = 1024 * 1024


def write(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def found(root: Path, only: Path | None = None) -> list[str]:
    items = walk(root, only=only, max_bytes=ROOM)
    return [item.path for item in items if isinstance(item, DiskFile)]


def skipped(root: Path) -> dict[str, str]:
    items = walk(root, max_bytes=ROOM)
    return {item.path: item.reason for item in items if isinstance(item, Skip)}


# ---------------------------------------------------------------- what is found


def test_gives_path_place_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, "notes/a.md", text="héllo")
    status = (tmp_path / "notes/a.md").stat()
    (item,) = walk(tmp_path, max_bytes=ROOM)
    assert item == DiskFile("notes/a.md", 6, status.st_mtime_ns)


def test_order_depends_on_names_alone(tmp_path: Path) -> None:
    names = ["b.md", "a/z.md", "a/b/c.md", "Z.md", "é.md", "a.md"]
    for folder, order in (("one", names), ("two", names[::-1])):
        write(tmp_path / folder, *order)
    assert found(tmp_path / "one") == found(tmp_path / "two")
    assert found(tmp_path / "one") == ["Z.md", "a.md", "b.md", "é.md", "a/z.md", "a/b/c.md"]


def test_leaves_out_what_tools_make_but_walks_other_hidden_folders(tmp_path: Path) -> None:
    write(tmp_path, ".agent/plan.md", ".github/workflows/ci.yml", ".framework/.context/a.md")
    write(tmp_path, ".git/HEAD", ".clew/clew.db", "node_modules/a/b.js", "a/__pycache__/b.pyc")
    write(tmp_path, ".venv/x.py", "venv/x.py", ".idea/x.xml", "lib/p-1.0.dist-info/METADATA")
    write(tmp_path, "env/pyvenv.cfg", "env/x.py", "cache/CACHEDIR.TAG", "cache/x.txt", ".DS_Store")
    expected = [".agent/plan.md", ".framework/.context/a.md", ".github/workflows/ci.yml"]
    assert found(tmp_path) == expected
    assert skipped(tmp_path) == {}


def test_the_indexes_of_a_memory_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "note.md", "memory.db.clew/derived/keyword-1/meta.json")
    assert found(tmp_path) == ["note.md"]


def test_a_root_that_would_be_left_out_below_another_is_walked(tmp_path: Path) -> None:
    write(tmp_path / "venv", "notes.md", "pyvenv.cfg")
    assert "notes.md" in found(tmp_path / "venv")


def test_a_git_file_of_a_worktree_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, ".git", "a.md")
    assert found(tmp_path) == ["a.md"]


def test_nesting_deeper_than_the_stack_of_python(tmp_path: Path) -> None:
    folders = [tmp_path / "/".join("d" * depth) for depth in range(1, 1200)]
    for folder in folders:
        folder.mkdir()
    file = folders[-1] / "a.md"
    file.touch()
    assert found(tmp_path) == [file.relative_to(tmp_path).as_posix()]
    file.unlink()
    for folder in reversed(folders):  # shutil, which pytest tidies up with, does run out of stack
        folder.rmdir()


def test_only_narrows_to_a_folder_or_a_file(tmp_path: Path) -> None:
    write(tmp_path, "a/x.md", "a/b/y.md", "ab/z.md", "c.md")
    write(tmp_path, ".gitignore", text="y.md\n")
    assert found(tmp_path, Path("a")) == ["a/x.md"]
    assert found(tmp_path, tmp_path / "a" / "x.md") == ["a/x.md"]
    assert found(tmp_path, Path("a/b/y.md")) == []
    assert found(tmp_path, Path("gone/away.md")) == []
    assert found(tmp_path, Path("c.md/x")) == []
    assert found(tmp_path, tmp_path) == found(tmp_path)


def test_only_must_lie_inside(tmp_path: Path) -> None:
    write(tmp_path, "in/a.md", "inside/b.md")
    for outside in (tmp_path / "inside", Path(".."), Path("../inside/b.md")):
        with pytest.raises(InputError, match="not inside"):
            walk(tmp_path / "in", only=outside, max_bytes=ROOM)


def test_a_root_that_is_no_folder_is_an_error_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    for root in (tmp_path / "gone", tmp_path / "a.md"):
        with pytest.raises(InputError, match="no folder"):
            walk(root, max_bytes=ROOM)


def test_a_root_reached_through_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", "a/b.md")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert found(tmp_path / "link", tmp_path / "link" / "a") == ["a/b.md"]


# ---------------------------------------------------------------- what is skipped


def test_links_are_never_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "a.md", "folder/b.md")
    write(tmp_path, "secret.md", "rooted/c.md")
    (root / "inside").symlink_to(root / "a.md")
    (root / "inside_folder").symlink_to("folder")
    (root / "up").symlink_to("..")
    (root / "out.md").symlink_to(tmp_path / "secret.md")
    (root / "out_folder").symlink_to(tmp_path / "rooted")
    (root / "broken").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    (root / "folder" / "home").symlink_to(root)
    assert found(root) == ["a.md", "folder/b.md"]
    reasons = skipped(root)
    assert reasons.pop("broken") == "broken link"
    assert "link" in reasons.pop("loop")
    assert reasons == dict.fromkeys(["out.md", "out_folder", "up"], "link leads out of the folder")


def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/s" if len(str(tmp_path)) > 90 else f"{tmp_path}/s")
        os.close(folder)
    assert skipped(tmp_path) == {"pipe": "not a regular file", "s": "not a regular file"}


def test_too_large_names_the_size_and_the_setting(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_bytes(b"x" * (2 * ROOM + ROOM // 2))
    (tmp_path / "fits.txt").write_bytes(b"x" * ROOM)
    assert found(tmp_path) == ["fits.txt"]
    assert skipped(tmp_path) == {"big.txt": "2.5 MB is more than max_file_mb allows (1 MB)"}


def test_an_unreadable_folder_does_not_end_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "locked/a.md", "open/b.md")
    opened = os.open

    def denied(path: str, *flags: int, **options: int) -> int:  # nothing is denied to root
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *flags, **options)

    monkeypatch.setattr(os, "open", denied)
    assert found(tmp_path) == ["open/b.md"]
    assert skipped(tmp_path) == {"locked": "cannot list the folder: Permission denied"}
    # Were the root's files taken for gone, the index would be emptied.
    with pytest.raises(InputError, match="Permission denied"):
        list(walk(tmp_path / "locked", max_bytes=ROOM))


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, os.fsdecode(b"caf\xe9.txt"), "café.txt")
    assert found(tmp_path) == ["café.txt"]
    ((path, reason),) = skipped(tmp_path).items()
    assert path == "caf\\udce9.txt" and "not valid UTF-8" in reason


def test_an_ignore_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").mkdir()
    write(tmp_path, "a.md")
    assert found(tmp_path) == ["a.md"]
    assert "patterns do not hold" in skipped(tmp_path)[".gitignore"]


# ---------------------------------------------------------------- what is ignored


def test_an_ignore_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".clewignore").symlink_to("/dev/zero")
    assert found(tmp_path) == ["a.md"]
    reasons = skipped(tmp_path)
    assert "regular" in reasons[".gitignore"] and "link" in reasons[".clewignore"]


def test_clewignore_has_the_last_word_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "b.log", "notes.md", "sub/c.log", "sub/d.md")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / ".clewignore").write_text("!b.log\nnotes.md\n")
    (tmp_path / "sub" / ".clewignore").write_text("!c.log\nd.*\n")
    assert found(tmp_path) == ["b.log", "sub/c.log"]
    assert skipped(tmp_path) == {}


def test_exclude_of_the_repository_counts_least(tmp_path: Path) -> None:
    write(tmp_path, ".git/info/exclude", text="*.md\n")
    write(tmp_path, "a.md", "b.md")
    assert found(tmp_path) == []
    (tmp_path / ".gitignore").write_text("!b.md\n")
    assert found(tmp_path) == ["b.md"]


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n# note\r\nbuild/\r\n")
    write(tmp_path, "a.log", "build/x.md", "b.md")
    assert found(tmp_path) == ["b.md"]


def test_an_ignored_folder_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path, "private/.gitignore", text="!*\n")
    write(tmp_path, "private/a.md")
    (tmp_path / "private" / "broken").symlink_to("nowhere")
    (tmp_path / ".gitignore").write_text("private/\n")
    assert list(walk(tmp_path, max_bytes=ROOM)) == []


_SEGMENTS = st.sampled_from(
    [
        *("a", "b", "ab", "foo", "*.log", "*.txt", "*", "**", "?", "[ab]", "[!a]", "[^a]", "a*"),
        *("*b", "\\#x", "#x", "\\!y", "a b", "x\\ ", "x ", "né", "[a-c]", "[]a]", "[[:alpha:]]"),
        *("[z-a]", "\\[z\\]", "[", "a\\", "**a", "***", "[[:foo:]]", "a-b", "[a-]", "[\\]]"),
        *("a?b", "foo[/]a"),
    ]
)
_PATTERNS = st.builds(
    lambda negated, rooted, segments, folder, rest: (
        f"{negated}{rooted}{'/'.join(segments)}{folder}{rest}"
    ),
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(_SEGMENTS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
    st.sampled_from(["", "", "", " ", "\r", "\t"]),
)
_NAMES = ["a", "b", "ab", "a.log", "b.txt", "foo", "#x", "!y", "a b", "x ", "né", "[z]", "a-b"]
_PATHS = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4).map("/".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is what the walk is compared with")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    paths=st.lists(_PATHS, min_size=3, max_size=12),
    ignores=st.dictionaries(
        st.sampled_from(["", "a/", "foo/", "a/b/"]),
        st.lists(_PATTERNS, min_size=1, max_size=5),
        min_size=1,
    ),
)
def test_agrees_with_git(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], ignores: dict[str, list[str]]
) -> None:
    root = tmp_path_factory.mktemp("repository")
    for path in paths:
        place = root / path
        if any(parent.is_file() for parent in place.parents) or place.is_dir():
            continue
        write(root, path)
    for folder, patterns in ignores.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_bytes("\n".join(patterns).encode())
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    git = ["git", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True, env=env)
    listing = subprocess.run(
        [*git, "ls-files", "-coz", "--exclude-standard"], check=True, env=env, capture_output=True
    )
    kept = {path for path in listing.stdout.decode().split("\0") if path}
    assert set(found(root)) == {path for path in kept if not path.endswith(".gitignore")}


@pytest.mark.timeout(30)
def test_ten_thousand_files_under_many_patterns(tmp_path: Path) -> None:
    for i in range(100):
        folder = tmp_path / f"part{i % 10}" / f"folder{i}"
        folder.mkdir(parents=True)
        for j in range(100):
            (folder / f"note-{j}.md").touch()
    patterns = [f"*.ext{i}\nname{i}/\n/top{i}/*.md" for i in range(12)]
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    assert len(found(tmp_path)) == 10_000
