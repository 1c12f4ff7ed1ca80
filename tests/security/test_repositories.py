"""A repository that somebody else made: nothing of it is run, and it leads nowhere else. That no
command of its settings is run, and no large file read, has tests in tests/lookup too."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import clew
from clew import ExternalLookupResult, Search
from clew.errors import SourceError
from clew.sources import git_repository
from clew.sources.git_repository import Git
from clew.trust import UntrustedError

PATIENT = 120.0


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    named = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(
        ["git", *named, *arguments], cwd=folder, input=given, check=True, capture_output=True,
        env={**plain, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    return done.stdout.decode().strip()


def commit(folder: Path, files: dict[str, bytes], message: str = "Begin") -> Path:
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return folder


def lookup(folder: Path, query: str) -> ExternalLookupResult:
    with Search(repositories=[folder], deadline=PATIENT) as search:
        found = search.external_lookup(query, 20, return_handles=True)
    assert isinstance(found, ExternalLookupResult)
    return found


def files(found: ExternalLookupResult) -> set[str]:
    return {hit.path or "" for hit in found if hit.metadata["kind"] == "file"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEW_TRUST", raising=False)
    monkeypatch.setenv("CLEW_MODEL", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return commit(tmp_path / "private", {"diary.md": b"The keel was sold in secret."})


# ---------------------------------------------------------------------- where it leads


def lead_by_file(folder: Path, private: Path) -> None:
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {private}/.git\n")


def lead_by_relative_file(folder: Path, private: Path) -> None:
    folder.mkdir()
    (folder / ".git").write_text("gitdir: ../private/.git\n")


def lead_by_link(folder: Path, private: Path) -> None:
    folder.mkdir()
    (folder / ".git").symlink_to(private / ".git")


def lead_by_linked_objects(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    for each in (private / ".git" / "objects").iterdir():
        here = folder / ".git" / "objects" / each.name
        if not here.exists():
            here.symlink_to(each)


def lead_by_alternates(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    (folder / ".git/objects/info/alternates").write_text(f"{private}/.git/objects\n")


def lead_by_quoted_alternates(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    hidden = str(private).replace("/", "\\057")
    (folder / ".git/objects/info/alternates").write_text(f'"{hidden}\\057.git\\057objects"\n')


def lead_by_two_alternates(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    (folder / "between" / "info").mkdir(parents=True)
    (folder / ".git/objects/info/alternates").write_text("../../between\n")
    (folder / "between/info/alternates").write_text(f"{private}/.git/objects\n")


def lead_by_common(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    (folder / ".git" / "commondir").write_text(f"{private}/.git\n")


def lead_without_end(folder: Path, private: Path) -> None:
    commit(folder, {"a.md": b"a"})
    names = "".join(f"../../{n}\n" for n in range(10_000))
    (folder / ".git/objects/info/alternates").write_text(names)


LEADS = {
    name.removeprefix("lead_"): value
    for name, value in dict(globals()).items()
    if name.startswith("lead_")
}


@pytest.mark.parametrize("lead", LEADS.values(), ids=LEADS)
@pytest.mark.parametrize(
    "settings",
    ['[lookup]\nrepositories = ["."]', '[sources.g]\nkind = "git"\nrepositories = ["."]'],
)
def test_a_folder_does_not_read_a_repository_elsewhere(
    lead: object, settings: str, tmp_path: Path, private: Path
) -> None:
    folder = tmp_path / "theirs"
    lead(folder, private)  # type: ignore[operator]
    (folder / "clew.toml").write_text(settings)
    with pytest.raises(UntrustedError, match=r"leads elsewhere|files are read"):
        clew.open(folder)


def test_a_repository_of_its_own_needs_no_trust(tmp_path: Path) -> None:
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "clew.toml").write_text('[lookup]\nrepositories = ["."]')
    clew.open(folder).close()


# ---------------------------------------------------------------------- what it holds


def bombs() -> dict[str, bytes]:
    """Small files that would take minutes, all memory, or the interpreter."""
    lines = [f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 9)]
    yaml = "\n".join(["---", "a0: &a0 {k: v}", *lines, "---", "words"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (200 << 20))
    return {
        "nested.md": b"---\na: " + b"[" * 30_000 + b"\n---\nwords\n",
        "merged.md": yaml.encode(),
        "packed.docx": packed.getvalue(),
        "broken.pdf": b"%PDF-1.4\n" + b"<<" * 50_000,
    }


def test_a_bomb_that_was_committed_takes_nothing_down(tmp_path: Path) -> None:
    good = {f"good{n}.md": b"The keel bolts are torqued." for n in range(3)}
    folder = commit(tmp_path / "theirs", {**bombs(), **good})
    pid = os.getpid()
    found = lookup(folder, "keel bolts")
    assert set(good) <= files(found) and os.getpid() == pid


def test_files_are_read_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader runs in the process that searches."""
    from clew.ingest import readers

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} ran here")

    monkeypatch.setattr(readers, "_load", refuse)
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel.", "b.html": b"<p>The keel."})
    assert files(lookup(folder, "keel")) == {"a.md", "b.html"}


def test_what_cannot_be_read_is_said_and_does_not_stand_for_what_was(tmp_path: Path) -> None:
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel.", "b.csv": b"part,nm\nkeel,90\n"})
    with Search(repositories=[folder], deadline=PATIENT) as search:
        assert {hit.path for hit in search.external_lookup("keel", 20)} >= {"a.md", "b.csv"}
        commit(folder, {"b.csv": b"\0\1\2" * 999}, "Break it")
        again = search.external_lookup("keel", 20, return_handles=True)
        assert isinstance(again, ExternalLookupResult)
        assert files(again) == {"a.md"}


def tree(folder: Path, *rows: tuple[bytes, bytes, str]) -> str:
    data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(of) for mode, name, of in rows)
    return git(folder, "hash-object", "-t", "tree", "--literally", "-w", "--stdin", given=data)


def test_names_that_lead_out_of_a_tree_are_only_names(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("The keel is at the bottom of the lake.")
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    blob = git(folder, "hash-object", "-w", "--stdin", given=b"The keel of a stranger.")
    names = (b"../secret.md", b"/etc/passwd.md", b".git/config.md", b"a\x1b[31m.md", b"-rf.md")
    made = tree(folder, *((b"100644", name, blob) for name in sorted(names)))
    last = git(folder, "commit-tree", "-m", "Odd names", made)
    git(folder, "update-ref", "refs/heads/main", last)
    found = lookup(folder, "keel")
    assert "lake" not in str([hit.content for hit in found])
    assert "../secret.md" in files(found)


@pytest.mark.parametrize(
    "head", [b"ref: ../../../../etc/passwd\n", b"ref: refs/heads/--help\n", b"\0" * 99, b"",
             b"ref: " + b"a/" * 5_000 + b"\n", b"ref: HEAD\n", b"gitdir: /\n"],
)  # fmt: skip
def test_odd_refs_are_an_error_of_that_source(head: bytes, tmp_path: Path) -> None:
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    (folder / ".git" / "HEAD").write_bytes(head)
    found = lookup(folder, "keel")
    assert not list(found) and found.degraded


def test_a_branch_may_have_the_name_of_an_option(tmp_path: Path) -> None:
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    last = git(folder, "rev-parse", "HEAD")
    ref = folder / ".git" / "refs" / "heads" / "--output=pwned"
    ref.write_text(f"{last}\n")
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/--output=pwned\n")
    assert files(lookup(folder, "keel")) == {"a.md"}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux limits it")
def test_git_may_hold_only_so_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is unpacked whole: this one is 200 kB on disk and 200 MB in memory."""
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    made = git(folder, "rev-parse", "HEAD^{tree}")
    huge = git(folder, "commit-tree", made, given=b"keel " * (40 << 20))
    git(folder, "update-ref", "refs/heads/main", huge)
    monkeypatch.setattr(git_repository, "MEMORY", 64 << 20)
    with pytest.raises(SourceError):
        Git(folder).list_commits("HEAD", most=9)


def test_hooks_pagers_and_filters_are_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $0 $* >> {mark}\ncat\n")
    script.chmod(0o755)
    folder = commit(tmp_path / "theirs", {"a.md": b"The keel."})
    (folder / ".git" / "info" / "attributes").write_text("* diff=e filter=e merge=e\n")
    (folder / ".git" / "more").write_text(f"[core]\n\tpager = {script}\n\tfsmonitor = {script}\n")
    for name, value in {
        "include.path": "more",
        "core.hooksPath": str(tmp_path),
        "diff.e.textconv": str(script),
        "diff.e.command": str(script),
        "filter.e.process": str(script),
        "filter.e.required": "true",
        "pager.log": str(script),
        "core.gitProxy": str(script),
        "remote.origin.url": f"ext::{script}",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "trailer.e.command": str(script),
    }.items():
        git(folder, "config", name, value)
    git(folder, "config", "core.repositoryformatversion", "1")
    assert files(lookup(folder, "keel")) == {"a.md"}
    assert not mark.exists()
