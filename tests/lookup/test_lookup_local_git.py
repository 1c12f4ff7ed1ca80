"""Scenario: local sources, repositories. Code, messages and diffs, with lines and commits."""

from __future__ import annotations

import os
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from handles import look_up
from repositories import BOAT, Repository, boat, environment

from clew import ExternalLookupResult, Search
from clew.sources.git_repository import Git

PATIENT = 60.0
"""Seconds: whether reading is done in time is no matter of these tests."""


def lookup(
    folder: Path, query: str, max_results: int = 20, **settings: object
) -> ExternalLookupResult:
    with Search(repositories=[folder], **{"deadline": PATIENT, **settings}) as search:  # type: ignore[arg-type]
        return look_up(search, query, max_results)


ask = partial(look_up, max_results=20)


def kinds(found: ExternalLookupResult) -> dict[str, list[str]]:
    by_kind: dict[str, list[str]] = {}
    for hit in found:
        by_kind.setdefault(hit.metadata["kind"], []).append(hit.id)
    return by_kind


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return boat(tmp_path / "boat")


def test_code_messages_and_diffs_are_found(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    first = repository.git("rev-parse", "HEAD~1")
    found = lookup(repository.folder, "torque")
    by_kind = {kind: set(ids) for kind, ids in kinds(found).items()}
    assert by_kind == {
        "file": {"git:boat:boat.py"},
        "commit": {f"git:boat@{head}"},
        "diff": {f"git:boat@{first}:boat.py"},  # the other one says what the file says
    }
    (code,) = [hit for hit in found if hit.metadata["kind"] == "file"]
    assert code.metadata["changed_in"] == [head]
    assert not found.degraded


def test_code_has_its_lines_its_definition_and_the_commit(repository: Repository) -> None:
    long = BOAT + "\n\n" + "\n".join(f"def filler_{i}():\n    return {i}\n" for i in range(200))
    long += '\n\nclass Mast:\n    def step(self):\n        return "unmistakable"\n'
    head = repository.commit("Step the mast", {"boat.py": long})
    found = lookup(repository.folder, "unmistakable")
    (code,) = [hit for hit in found if hit.metadata["kind"] == "file"]
    assert code.path == "boat.py" and code.metadata["commit"] == head
    assert code.lines is not None
    shown = long.splitlines()[code.lines[0] - 1 : code.lines[1]]
    assert shown[0] in code.content and any("unmistakable" in line for line in shown)
    (named,) = [
        h for h in lookup(repository.folder, "class Mast step") if h.metadata["kind"] == "file"
    ]
    assert "Mast" in named.metadata["heading"] + named.content


def test_a_message_has_its_author_and_commit(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    (hit,) = lookup(repository.folder, "gale")
    assert hit.id == f"git:boat@{head}" and hit.title == "Raise the torque"
    assert hit.metadata["commit"] == head and hit.metadata["author"] == "Ada"


def test_a_diff_has_the_lines_it_changed(repository: Repository) -> None:
    numbered = "\n".join(f"line {i}" for i in range(1, 101))
    repository.commit("Number the lines", {"lines.txt": numbered})
    changed = numbered.replace("line 90", "a barnacle")
    head = repository.commit("Add life", {"lines.txt": changed})
    found = lookup(repository.folder, "barnacle 90")
    (diff,) = [hit for hit in found if hit.id.startswith(f"git:boat@{head}:")]
    assert diff.path == "lines.txt" and diff.metadata["kind"] == "diff"
    assert diff.lines == (87, 93)
    assert "-line 90" in diff.content and "+a barnacle" in diff.content


def test_a_new_commit_is_seen_and_what_it_removed_is_gone(repository: Repository) -> None:
    with Search(repositories=[repository.folder], deadline=PATIENT) as search:
        assert "file" in kinds(ask(search, "sloop"))
        assert not ask(search, "trimaran")
        repository.commit("Buy a trimaran", {"README.md": "# Boat\n\nThree hulls.\n"})
        assert set(kinds(ask(search, "trimaran"))) == {"commit", "diff"}
        assert "file" not in kinds(ask(search, "sloop"))  # it is in the diff that removed it
        assert "diff" in kinds(ask(search, "sloop"))


def test_history_that_was_written_anew_is_forgotten(repository: Repository) -> None:
    with Search(repositories=[repository.folder], deadline=PATIENT) as search:
        assert ask(search, "gale")
        repository.git("commit", "-q", "--amend", "-m", "Raise it")
        assert not ask(search, "gale")
        assert "commit" in kinds(ask(search, "raise"))


def test_only_so_many_commits_are_looked_at(repository: Repository) -> None:
    for word in ("whelk", "conch", "cowrie"):
        repository.commit(f"Find a {word}")
    assert not lookup(repository.folder, "whelk", commits=2)
    assert lookup(repository.folder, "conch", commits=2)
    assert lookup(repository.folder, "whelk")


# ---------------------------------------------------------------------- odd repositories


def test_a_repository_without_commits_is_named(tmp_path: Path) -> None:
    empty = Repository(tmp_path / "empty")
    found = lookup(empty.folder, "anything")
    assert len(found) == 0 and "no commits yet" in found.degraded[0]


def test_one_without_commits_does_not_take_another_down(
    tmp_path: Path, repository: Repository
) -> None:
    empty = Repository(tmp_path / "empty")
    with Search(repositories=[empty.folder, repository.folder], deadline=PATIENT) as search:
        found = ask(search, "torque")
        assert found and "no commits yet" in found.degraded[0]
        empty.commit("Begin", {"a.txt": "torque in the other"})
        found = ask(search, "torque")
        assert not found.degraded
        assert {hit.metadata["repository"] for hit in found} == {"boat", "empty"}


def test_a_bare_repository_is_read(tmp_path: Path, repository: Repository) -> None:
    bare = tmp_path / "bare.git"
    repository.git("clone", "-q", "--bare", ".", str(bare))
    found = lookup(bare, "torque")
    assert set(kinds(found)) == {"file", "commit", "diff"} and not found.degraded
    assert found[0].metadata["repository"] == "bare"


def test_a_detached_head_is_what_is_checked_out(repository: Repository) -> None:
    repository.git("checkout", "-q", "--detach", "HEAD~1")
    found = lookup(repository.folder, "torque")
    (code,) = [hit for hit in found if hit.metadata["kind"] == "file"]
    assert "return 40" in code.content and not lookup(repository.folder, "gale")


def test_a_shallow_clone_ends_without_a_diff_that_adds_everything(
    tmp_path: Path, repository: Repository
) -> None:
    shallow = tmp_path / "shallow"
    address = f"file://{repository.folder}"
    repository.git("clone", "-q", "--depth", "1", address, str(shallow))
    found = lookup(shallow, "torque")
    assert set(kinds(found)) == {"file", "commit"} and not found.degraded
    assert "diff" not in kinds(lookup(shallow, "class Keel"))


def test_a_submodule_is_noted_and_not_looked_into(tmp_path: Path, repository: Repository) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit("Inner", {"secret.txt": "a word only the submodule has: quahog\n"})
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.folder))
    repository.commit("Add the submodule")
    found = lookup(repository.folder, "quahog")
    assert len(found) == 0 and not found.degraded
    assert "1 submodule not looked into" in found.trace["backends"]["local_git"]["notes"]
    assert lookup(repository.folder, "torque")
    assert not any(h.path == "inner" for h in lookup(repository.folder, "subproject commit"))


@pytest.mark.parametrize(
    "name",
    [
        *("with space.txt", 'quo"te.txt', "tab\there.txt", "new\nline.txt", "ünï/cödé.txt"),
        *("-rf.txt", "back\\slash.txt", "a => b.txt", "'; touch pwned; '.txt", "b/b.txt"),
        "dev/null.txt",
    ],
)
def test_odd_names_of_files_come_through(repository: Repository, name: str) -> None:
    repository.commit("Odd", {name: "a limpet\n"})
    repository.commit("Odder", {name: "a whelk\n"})
    with Search(repositories=[repository.folder], deadline=PATIENT) as search:
        before, now = ask(search, "limpet"), ask(search, "whelk")
    assert {hit.path for hit in (*before, *now)} == {name}
    assert len(before) == 2 and set(kinds(before)) == {"diff"} and "file" in kinds(now)


def test_a_name_that_is_no_text_is_shown_as_it_can_be(repository: Repository) -> None:
    place = os.fsencode(repository.folder) + b"/caf\xe9.txt"
    with open(place, "wb") as file:  # noqa: PTH123 - a Path is text
        file.write(b"a limpet\n")
    repository.commit("Odd")
    found = lookup(repository.folder, "limpet")
    assert {hit.path for hit in found} == {"caf\\xe9.txt"} and not found.degraded


def test_links_and_binary_files_are_passed_over(repository: Repository) -> None:
    (repository.folder / "link.txt").symlink_to("/etc/passwd")
    repository.commit("Odd", {"data.bin": b"\0limpet\0" * 100, "text.txt": b"\0limpet\xff\n"})
    found = lookup(repository.folder, "root daemon limpet")
    assert not found.degraded
    assert all(hit.path in (None, "text.txt") for hit in found)


def test_a_file_outside_any_repository_is_no_repository(tmp_path: Path) -> None:
    found = lookup(tmp_path / "elsewhere", "x")
    assert "not a git repository" in found.degraded[0]
    assert "no folder" in lookup(tmp_path / "gone", "x").degraded[0]


def test_a_folder_inside_a_repository_is_not_that_repository(repository: Repository) -> None:
    (repository.folder / "sub").mkdir()
    assert "not a git repository" in lookup(repository.folder / "sub", "torque").degraded[0]


def test_a_repository_with_damaged_objects_says_so(repository: Repository) -> None:
    for file in (repository.folder / ".git" / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"damaged")
    found = lookup(repository.folder, "torque")
    assert len(found) == 0 and found.degraded


def test_without_git_the_backend_says_what_to_do(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install it" in lookup(repository.folder, "torque").degraded[0]


# ---------------------------------------------------------------------- large ones


def test_a_gigabyte_in_the_history_is_never_read(repository: Repository, tmp_path: Path) -> None:
    """It is there, deleted by the next commit: diffs and files pass it by."""
    large = repository.folder / "large.txt"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    repository.git("-c", "core.compression=1", "-c", "core.bigFileThreshold=1m", "add", "large.txt")
    repository.git("commit", "-q", "-m", "Add a gigabyte")
    with_it = lookup(repository.folder, "torque")
    assert "1 file larger than max_file_mb" in with_it.trace["backends"]["local_git"]["notes"]
    large.unlink()
    repository.commit("Remove the whopper")
    found = lookup(repository.folder, "whopper torque")
    assert not found.degraded
    assert set(kinds(found)) == {"file", "commit", "diff"}
    assert not any(hit.path == "large.txt" for hit in found)


def test_a_large_diff_is_cut(repository: Repository) -> None:
    text = "begin mollusc\n" + "".join(f"row {i} of many\n" for i in range(20_000)) + "end whelk\n"
    repository.commit("Import", {"rows.txt": text})
    assert set(kinds(lookup(repository.folder, "whelk"))) == {"file"}
    repository.commit("Clear", {"rows.txt": "none\n"})
    assert set(kinds(lookup(repository.folder, "mollusc"))) == {"diff"}
    assert not lookup(repository.folder, "whelk")


# ---------------------------------------------------------------------- nothing is run or written


def test_no_command_of_the_repository_is_run(repository: Repository, tmp_path: Path) -> None:
    """Hooks, pagers, filters, textconv and diff drivers, signature checkers: all would leave a
    mark."""
    mark = tmp_path / "was-run"
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\necho $0 $* >> {mark}\ncat "$1" 2>/dev/null\n')
    script.chmod(0o755)
    repository.write(".gitattributes", "*.py diff=evil filter=evil\n")
    repository.commit("Set a trap")
    for name, value in {
        "core.pager": str(script),
        "core.fsmonitor": str(script),
        "core.sshCommand": str(script),
        "core.editor": str(script),
        "diff.external": str(script),
        "diff.evil.command": str(script),
        "diff.evil.textconv": str(script),
        "filter.evil.smudge": str(script),
        "filter.evil.clean": str(script),
        "log.showSignature": "true",
        "gpg.program": str(script),
        "credential.helper": str(script),
        "alias.log": f"!{script}",
        "alias.ls-tree": f"!{script}",
        "uploadpack.packObjectsHook": str(script),
        "core.alternateRefsCommand": str(script),
    }.items():
        repository.git("config", name, value)
    for hook in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-index-change"):
        place = repository.folder / ".git" / "hooks" / hook
        place.write_text(script.read_text())
        place.chmod(0o755)
    mark.unlink(missing_ok=True)
    found = lookup(repository.folder, "torque")
    assert set(kinds(found)) == {"file", "commit", "diff"} and not found.degraded
    assert not mark.exists(), mark.read_text()


def test_what_the_shell_tells_git_does_not_count(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    other.commit("Other", {"o.txt": "torque elsewhere"})
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.worktree")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "/nowhere")
    found = lookup(repository.folder, "torque")
    assert {hit.metadata["repository"] for hit in found} == {"boat"}
    assert "boat.py" in {hit.path for hit in found}


def test_nothing_is_fetched_for_a_clone_that_left_files_out(
    tmp_path: Path, repository: Repository
) -> None:
    repository.git("config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    address = f"file://{repository.folder}"
    subprocess.run(
        ["git", "clone", "-q", "--bare", "--filter=blob:none", address, str(partial)],
        check=True,
        capture_output=True,
        env=environment(),
    )
    before = sorted(p.name for p in (partial / "objects").rglob("*"))
    found = lookup(partial, "torque")
    assert found.degraded or "file" not in kinds(found)
    assert sorted(p.name for p in (partial / "objects").rglob("*")) == before


def test_the_repository_is_left_as_it_was(repository: Repository) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {
            str(p): (p.stat().st_size, p.stat().st_mtime_ns)
            for p in repository.folder.rglob("*")
            if p.is_file()
        }

    before = state()
    assert lookup(repository.folder, "torque")
    assert state() == before


def test_what_is_read_within_the_deadline_is_found_and_the_rest_goes_on(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, over = threading.Event(), threading.Event()
    real = Git.read_diffs

    def slow(*arguments: Any, **more: Any) -> Any:
        arrived.set()
        over.wait(30)
        return real(*arguments, **more)

    monkeypatch.setattr(Git, "read_diffs", slow)
    with Search(repositories=[repository.folder], deadline=5.0) as search:
        found = ask(search, "torque")
        assert arrived.is_set() and set(kinds(found)) == {"file", "commit"}
        assert "still being read" in found.degraded[0]
        over.set()
        for _ in range(50):
            found = ask(search, "torque")
            if not found.degraded:
                break
        assert set(kinds(found)) == {"file", "commit", "diff"}


def test_closing_does_not_wait_for_a_long_reading(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.sources import git

    monkeypatch.setattr(git, "BATCH", 1)
    for word in ("whelk", "conch", "cowrie"):
        repository.commit(word, {f"{word}.txt": word})
    real, reached = Git.read_diffs, []
    ended = threading.Event()

    def slow(*arguments: Any, **more: Any) -> Any:
        for entry in real(*arguments, **more):
            reached.append(entry)
            ended.wait(30)
            yield entry

    monkeypatch.setattr(Git, "read_diffs", slow)
    search = Search(repositories=[repository.folder], deadline=5.0)
    assert "still being read" in ask(search, "torque").degraded[0]
    closing = threading.Thread(target=search.close)
    closing.start()
    ended.set()
    closing.join(30)
    assert not closing.is_alive() and len(reached) < 7


def test_what_is_personal_in_a_repository_is_found_only_if_asked_for(tmp_path: Path) -> None:
    secret = "---\ndomain: personal\n---\n" + "filler\n" * 30 + "The walnut safe.\n"
    made = Repository(tmp_path / "home")
    made.commit(
        "Begin",
        {
            "secret.md": secret,
            "gone.md": secret,
            "diary/monday.md": "A walnut fell on my head.\n",
            "tree.md": "The walnut tree.\n",
            "clew.toml": '[domains]\npersonal = ["diary/"]\n',
        },
    )
    made.commit("Change", dict.fromkeys(("secret.md", "gone.md"), secret + "More walnut.\n"))
    (made.folder / "gone.md").unlink()
    made.commit("Clear up")
    found = lookup(made.folder, "walnut")
    assert {hit.path for hit in found} == {"tree.md"}
    everything = lookup(made.folder, "walnut", include_personal=True)
    paths = {hit.path for hit in everything}
    assert paths == {"tree.md", "secret.md", "gone.md", "diary/monday.md"}
    # The settings count as they are now
    with Search(repositories=[made.folder], deadline=PATIENT) as search:
        assert {hit.path for hit in ask(search, "walnut")} == {"tree.md"}
        made.write("clew.toml", "")
        assert {hit.path for hit in ask(search, "walnut")} == {"tree.md", "diary/monday.md"}


def test_a_large_file_in_the_history_is_not_compared_and_the_rest_of_its_commit_is(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.sources import git_repository

    monkeypatch.setattr(git_repository, "LARGEST_FILE", 1_000)
    repository.commit("Film it", {"film.bin": b"reel " * 1_000, "reel.md": "A reel of film.\n"})
    (repository.folder / "film.bin").unlink()
    repository.commit("Forget the film", {"odd [name] *.md": "No reel.\n"})
    compared: list[tuple[str, ...]] = []
    stream = Git.stream

    def watched(self: Git, *arguments: str, **more: Any) -> Any:
        compared.append(arguments)
        return stream(self, *arguments, **more)

    monkeypatch.setattr(Git, "stream", watched)
    found = lookup(repository.folder, "reel")
    diffs = {hit.path for hit in found if "changed_in" in hit.metadata}
    assert diffs == {"reel.md", "odd [name] *.md"}
    named = [a[a.index("--") + 1 :] for a in compared if "-p" in a and "--" in a]
    assert named == [("odd [name] *.md",), ("reel.md",)]


def test_the_last_commit_is_known_however_it_came_about(repository: Repository) -> None:
    tip = Git(repository.folder)

    def agrees() -> bool:
        return tip.head() == repository.git("rev-parse", "HEAD") == tip.head()

    assert agrees()
    repository.commit("More", {"more.md": "more"})
    assert agrees()
    repository.git("pack-refs", "--all")
    assert agrees()
    repository.git("commit", "-q", "--amend", "-m", "Other words")
    assert agrees()
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("Aside", {"side.md": "side"})
    assert agrees()
    repository.git("checkout", "-q", "--detach", "HEAD~1")
    assert agrees()
    repository.git("worktree", "add", "-q", "../tree", "main")
    other = Repository.__new__(Repository)
    other.folder = repository.folder.parent / "tree"
    tree = Git(other.folder)
    assert tree.head() == other.git("rev-parse", "HEAD")
    other.commit("There", {"there.md": "there"})
    assert tree.head() == other.git("rev-parse", "HEAD") and agrees()


def test_a_repository_given_twice_is_read_once(repository: Repository) -> None:
    twice = [repository.folder, repository.folder / ".." / repository.folder.name]
    with Search(repositories=twice, deadline=PATIENT) as search:
        assert len(kinds(ask(search, "torque"))["file"]) == 1
