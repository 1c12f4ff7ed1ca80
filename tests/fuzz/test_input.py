"""Queries, filters, files, settings, kept answers and imports of any content: only ClewError
leaves, and what is not fit to be read is named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from odd import MARKDOWN, POOL, SEEDS, TOML, WORDS, damaged

import clew
from clew import config, trust
from clew.cache import SearchCache
from clew.ingest.readers import known_suffixes, read
from clew.ingest.readers.markdown import read_front_matter
from clew.text.parse import parse

from hashing import HashingEmbedder

HERE = Path(__file__).parent
CORPUS: list[dict[str, str]] = json.loads((HERE / "corpus.json").read_text("utf-8"))
"""Inputs that once got through as something else than a ClewError, or took a process down."""


def fuzzed(few: int) -> settings:
    return settings(
        max_examples=few,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )


@pytest.fixture(autouse=True)
def aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLEW_OFFLINE", "1")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clew.Engine]:
    with clew.open(tmp_path_factory.mktemp("s"), embedder=HashingEmbedder()) as opened:
        opened.add(
            {"id": f"r{i}", "content": f"harbour crane {i}", "tags": ["t"]} for i in range(9)
        )
        yield opened


QUERIES = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=8).map(" ".join)


@fuzzed(150)
@given(QUERIES, st.booleans())
def test_parse(query: str, syntax: bool) -> None:
    with contextlib.suppress(clew.ClewError):
        parse(query, syntax=syntax)


def test_search(engine: clew.Engine) -> None:
    @fuzzed(60)
    @given(QUERIES, st.sampled_from(["hybrid", "keyword", "vector"]))
    def check(query: str, mode: Any) -> None:
        with contextlib.suppress(clew.ClewError):
            json.dumps([dict(hit) for hit in engine.search(query, mode=mode)])

    check()


def test_filters(engine: clew.Engine) -> None:
    names = [*clew.Filter.__dataclass_fields__, "unknown", "a.b", ""]

    @fuzzed(120)
    @given(st.dictionaries(st.sampled_from(names), st.sampled_from(POOL), max_size=4))
    def check(given: dict[str, Any]) -> None:
        with contextlib.suppress(clew.ClewError):
            engine.store.count(clew.Filter.of(given))

    check()


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", sorted(known_suffixes()))
def test_readers(suffix: str) -> None:
    @fuzzed(5)
    @given(st.one_of(damaged(SEEDS), st.binary(max_size=200)))
    def check(data: bytes) -> None:
        with contextlib.suppress(clew.ClewError):
            read(data, f"a{suffix}")

    check()


@fuzzed(80)
@given(damaged([MARKDOWN, b"---\na: &x [1]\nb: *x\n---\n", b"+++\na = 1\n+++\n"]))
def test_front_matter(data: bytes) -> None:
    with contextlib.suppress(clew.ClewError):
        read_front_matter(data.decode("utf-8", "replace"))


# ---------------------------------------------------------------------- settings, answers, imports


def test_settings(tmp_path: Path) -> None:
    names = [setting.name for setting in config.all_settings()]

    @fuzzed(80)
    @given(damaged([TOML, b"\xef\xbb\xbfa=1", b"a = 1e999", b"store = 'x://y'"]), st.data())
    def check(content: bytes, data: st.DataObject) -> None:
        (tmp_path / "clew.toml").write_bytes(content)
        given = data.draw(
            st.dictionaries(st.sampled_from(names), st.sampled_from(POOL), max_size=2)
        )
        with contextlib.suppress(clew.ClewError):
            config.load(tmp_path, given)

    check()


def test_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEW_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # nobody else's
    place = trust.user_folder()
    place.mkdir(parents=True)
    (tmp_path / "clew.toml").write_text('llm = "m"')
    here = str(tmp_path.resolve()).encode()
    entries = b'{"settings": "b", "roots": ["/r"]}', b"null", b'["b"]', b'{"settings": 1}'
    seeds = [b'{"folders": {"' + here + b'": ' + entry + b"}}" for entry in entries]

    @fuzzed(40)
    @given(damaged([*seeds, b"{}", b"[]", b'{"folders": []}']))
    def check(content: bytes) -> None:
        (place / "trust.json").write_bytes(content)
        for call in (
            trust.trusted,
            lambda: trust.revoke(tmp_path / "other"),
            lambda: trust.check_roots(tmp_path, {"a": "/r"}),
            lambda: trust.trust(tmp_path, roots={"a": "/r"}),
        ):
            with contextlib.suppress(clew.ClewError):
                call()
        with pytest.raises(clew.ClewError):
            config.load(tmp_path)

    check()


def test_cache_file(tmp_path: Path) -> None:
    file = tmp_path / ".clew" / "cache.db"
    with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
        engine.add([{"id": "a", "content": "harbour"}])
        engine.search("harbour", cache=True)
    seeds = [file.read_bytes()]

    @fuzzed(8)
    @given(damaged(seeds), st.integers(0, len(seeds[0]) - 1), st.integers(0, 7))
    def check(content: bytes, at: int, bit: int) -> None:
        for other in file.parent.glob("cache.db*"):
            other.unlink()
        flipped = bytearray(content)
        if at < len(flipped):
            flipped[at] ^= 1 << bit
        file.write_bytes(bytes(flipped))
        with contextlib.suppress(clew.ClewError):
            opened = SearchCache(file)
            opened.stats()
            opened.close()
        with clew.open(tmp_path, embedder=HashingEmbedder()) as engine:
            assert [hit.id for hit in engine.search("harbour", cache=True)] == ["a"]

    check()


def test_imports(tmp_path: Path) -> None:
    with clew.Memory(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        memory.remember("Ana is allergic to walnuts", tags=["health"], metadata={"a": [1]})
        memory.export_json(tmp_path / "whole.json")
        whole = (tmp_path / "whole.json").read_bytes()
        parsed = json.loads(whole)

        @fuzzed(40)
        @given(damaged([whole, b"{}", b"[]", b'{"content": "x"}\n', b"null"]))
        def check(content: bytes) -> None:
            (tmp_path / "in.json").write_bytes(content)
            with contextlib.suppress(clew.ClewError):
                memory.import_json(tmp_path / "in.json")

        check()

        @fuzzed(60)
        @given(st.data())
        def check_values(data: st.DataObject) -> None:
            changed = _replaced(json.loads(json.dumps(parsed)), data)
            with contextlib.suppress(clew.ClewError):
                memory.import_json(changed)

        check_values()


def _replaced(value: Any, data: st.DataObject) -> Any:
    """With an odd value in one place."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 9)):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: _replaced(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 9)):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], _replaced(value[at], data), *value[at + 1 :]]
    return data.draw(st.sampled_from(POOL))


# ---------------------------------------------------------------------- what once failed


def _read_settings(text: str) -> None:
    Path("clew.toml").write_text(text, "utf-8", errors="surrogatepass")
    config.load(Path())


def _import(text: str) -> None:
    with clew.Memory("corpus.db", embedder=HashingEmbedder()) as memory:
        memory.import_json(json.loads(text))


KINDS: dict[str, Callable[[str], Any]] = {
    "query": parse,
    "front matter": read_front_matter,
    "settings": _read_settings,
    "import": _import,
    "fts_escape": clew.fts_escape,
    "remember": lambda text: clew.Memory("corpus.db", embedder=None).remember(json.loads(text)),
    "remember_many": lambda text: clew.Memory("corpus.db").remember_many(json.loads(text)),
    "filter": lambda text: clew.Filter.of(json.loads(text)),
    "get": lambda text: clew.Memory("corpus.db").get(json.loads(text)),
    "open": lambda text: clew.open(json.loads(text)).close(),
}


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case['kind']}-{case['input'][:20]!a}")
def test_what_once_failed(case: dict[str, str]) -> None:
    with contextlib.suppress(clew.ClewError):
        KINDS[case["kind"]](case["input"])
