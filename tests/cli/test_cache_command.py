"""clew cache: what is kept, and forgetting it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clew.cache import SearchCache
from clew.types import Hit, SearchResult
from commands import Command


@pytest.fixture
def notes(indexed: Callable[..., Command]) -> Command:
    return indexed(a="About anchors.")


@pytest.fixture
def kept(notes: Command, tmp_path: Path) -> Path:
    file = tmp_path / ".clew" / "cache.db"
    cache = SearchCache(file)
    answer = SearchResult((Hit("a", "About anchors."),))
    for name in ("1.a", "1.b"):
        assert cache.get(name) is None
        cache.put(name, answer)
    cache.get("1.a")
    cache.close()
    return file


def test_stats_say_what_is_kept_and_how_often_it_answered(kept: Path, notes: Command) -> None:
    figures = notes("cache", "stats", "--json").data
    assert figures["entries"] == 2
    assert figures["bytes"] > 0
    assert figures["hits"] == {"exact": 1, "semantic": 0}
    assert figures["misses"] == 2
    assert figures["problem"] is None
    assert Path(figures["file"]).samefile(kept)
    lines = notes("cache", "stats").out.splitlines()
    assert [line.split()[0] for line in lines] == ["file", "answers", "hits", "misses", "oldest"]
    assert "1 exact, 0 semantic" in lines[2]


def test_clear_forgets_all_answers(kept: Path, notes: Command, tmp_path: Path) -> None:
    assert notes("cache", "clear", "--store", tmp_path).out == "2 answers forgotten.\n"
    assert notes("cache", "stats", "--json").data["entries"] == 0
    assert notes("cache", "clear").out == "0 answers forgotten.\n"


def test_stats_of_a_store_that_was_never_searched_make_no_file(
    notes: Command, tmp_path: Path
) -> None:
    (tmp_path / ".clew" / "cache.db").unlink(missing_ok=True)
    assert notes("cache", "stats", "--json").data["entries"] == 0
    assert not (tmp_path / ".clew" / "cache.db").exists()


def test_stats_say_what_is_wrong_with_the_file(kept: Path, notes: Command) -> None:
    for ending in ("", "-wal", "-shm"):
        kept.with_name(kept.name + ending).unlink(missing_ok=True)
    kept.mkdir()
    done = notes("cache", "stats")
    assert done.code == 0 and "\n! " in done.out and "memory only" in done.out
    done = notes("cache", "clear")
    assert done.code == 1 and "could not be cleared" in done.err


@pytest.mark.parametrize("word", ["stats", "clear"])
def test_a_folder_without_a_store_has_no_cache(command: Command, tmp_path: Path, word: str) -> None:
    done = command("cache", word, "--store", tmp_path)
    assert done.code == 1 and "clew index" in done.err
    assert command("cache", word).code == 1
    assert list(tmp_path.iterdir()) == []
