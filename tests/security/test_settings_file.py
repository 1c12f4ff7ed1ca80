"""A clew.toml that is no file, has no end, or takes for ever to read: an error that names it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from clew.cli import run
from clew.config import load
from clew.errors import ConfigError

LONG = 2000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clew.toml"


def refuse(file: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        load(file.parent)
    assert str(file) in str(raised.value)
    assert run(["config", "rrf_k", "9", "-C", str(file.parent)]) != 0
    return str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_pipe_is_not_waited_for(file: Path) -> None:
    os.mkfifo(file)
    # Whoever reads it would be let go by this one, with no settings at all.
    threading.Thread(target=file.write_bytes, args=(b"",), daemon=True).start()
    assert "no regular file" in refuse(file)


def test_a_device_is_no_settings_file(file: Path) -> None:
    file.symlink_to(os.devnull)
    assert "no regular file" in refuse(file)


def test_a_file_without_end_is_not_read(file: Path) -> None:
    file.write_text("rrf_k = 9\n" + "#\n" * 200_000)
    assert "more than 250,000 bytes" in refuse(file)


@pytest.mark.parametrize(
    "text",
    [
        "a." * LONG + "b = 1",
        '"=".' * LONG + "b = 1",
        "'a' . " * LONG + "b = 1",
        f"[{'a.' * LONG}b]",
        f"x = {{{'a.' * LONG}b = 1}}",
        f'x = {{z = """b"""", {"a." * LONG}b = 1}}',
        f"x = {{z = '''b'''', {'a.' * LONG}b = 1}}",
        f'x = "\\""\n{"a." * LONG}b = 1',
        f"x = 1 # ' \"\n{'a.' * LONG}b = 1",
    ],
    ids=lambda text: text[:20],
)
def test_a_key_of_many_parts_is_refused_before_it_is_read(file: Path, text: str) -> None:
    file.write_text(text)
    assert "a key of more than" in refuse(file)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 9_000, "a = " + "{a=" * 9_000, f"rrf_k = {'1' * 100_000}"], ids=len
)
def test_an_error_of_the_reader_names_the_file(file: Path, text: str) -> None:
    file.write_text(text)
    refuse(file)


def test_dots_in_a_text_are_no_parts(file: Path) -> None:
    file.write_text(f'model_query_prefix = "{"a." * LONG}"  # {"a." * LONG}')
    assert load(file.parent).model_query_prefix == "a." * LONG
