"""Sources as the settings name them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import load
from clew.ranking.fusion import ATHENA_WEIGHTS
from clew.sources import configure


def configured(root: Path, **settings: Any) -> Any:
    return configure(load(root, settings), root)


def test_the_default_profile_asks_words_vectors_tags_names_canonical_and_the_graph(
    tmp_path: Path,
) -> None:
    made = configured(tmp_path)
    assert list(made) == ["keyword", "vectors", "tags", "filenames", "canonical", "graph"]
    assert all(source.enabled and source.kind == name for name, source in made.items())


def test_the_athena_profile_has_its_weights_for_its_collections(tmp_path: Path) -> None:
    made = configured(tmp_path, profile="athena")
    assert {n: s.weight for n, s in made.items() if n in ATHENA_WEIGHTS} == ATHENA_WEIGHTS
    assert set(made) - set(ATHENA_WEIGHTS) == {"keyword", "vectors"}
    assert made["keyword"].weight == made["vectors"].weight == 1.0
    settings = load(tmp_path, {"profile": "athena"})
    assert (settings.fusion, settings.rrf_k, settings.seconds) == ("weighted_rrf", 60, 5.0)
    assert (settings.confidence_high, settings.confidence_med) == (0.03, 0.02)
    lists = [name for name, source in made.items() if source.kind == "vectors"]
    assert set(settings.collections) == set(lists) - {"vectors"}
    assert made["graphrag"].deadline == 5.0


def test_the_users_file_changes_one_line_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_text(
        'profile = "athena"\n[weights]\nsession = 9\n[sources.tags]\nweight = 7\n'
        "[sources.canonical]\nenabled = false\n"
    )
    made = configured(tmp_path)
    assert (made["session"].weight, made["tags"].weight, made["protocol"].weight) == (9, 7, 2.8)
    assert not made["canonical"].enabled
    assert load(tmp_path).sources["tags"]["shards"]  # the rest of that table is the profile's


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"sources": {"tagz": {}}},
            r"\[sources.tagz\]: there is no source 'tagz': did you mean 'tags'",
        ),
        ({"sources": {"mine": {"kind": "vector"}}}, "did you mean 'vectors'"),
        ({"sources": {"tags": {"shard": ["x"]}}}, "no option 'shard': did you mean 'shards'"),
        ({"sources": {"tags": {"shards": 5}}}, "expected texts"),
        ({"sources": {"tags": {"per_shard": -1}}}, "expected a count"),
        ({"sources": {"tags": {"weight": -1}}}, "must be 0 or more"),
        ({"sources": {"tags": {"weight": float("nan")}}}, "must be 0 or more"),
        ({"sources": {"tags": {"weight": "much"}}}, "as a number, not 'much'"),
        ({"sources": {"tags": {"tier": "lower"}}}, "tier = 'lower': did you mean 'low'"),
        ({"sources": {"tags": {"enabled": "no"}}}, "expected true or false"),
        ({"sources": {"tags": {"deadline": -2}}}, "must be 0 or more"),
        ({"sources": {"tags": 3}}, "sources are tables"),
        ({"weights": {"keywords": 1}}, "no source 'keywords': did you mean 'keyword'"),
        ({"profile": "athen"}, "did you mean 'athena'"),
        ({"collections": {"notes": [""]}}, "expected folders"),
        ({"collections": ["notes"]}, "expected a table of folders"),
        ({"confidence_med": 0.5, "confidence_high": 0.1}, "confidence_med is above"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_an_error_with_the_nearest(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(clew.ConfigError, match=message):
        configured(tmp_path, **settings)


def test_one_kind_may_be_asked_more_than_once(tmp_path: Path) -> None:
    two = {"work": {"kind": "keyword", "collection": "work"}}
    with clew.open(tmp_path, model="none", sources=two) as engine:
        engine.add(
            [
                clew.Record("a", "keel", collection="work"),
                clew.Record("b", "keel", collection="home"),
            ]
        )
        result = engine.search("keel", explain=True)
        lists = {n: [hit["id"] for hit in some] for n, some in result.trace["lists"].items()}
    assert (lists["work"], lists["keyword"]) == (["a"], ["a", "b"])


PLUGIN = """
    from clew.types import Candidate

    def moon(root, *, phase: str = "full"):
        def source(query, context):
            return [Candidate("moon", 1.0)] if phase == "full" else []
        return source
"""


def test_an_installed_package_brings_a_kind_by_its_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    about = site / "moonlight-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "moonlight.py").write_text(textwrap.dedent(PLUGIN))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moonlight\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[clew.sources]\nmoon = moonlight:moon\n")
    script = f"""
        import sys; sys.path.insert(0, {str(site)!r})
        import clew
        with clew.open({str(tmp_path / "f")!r}, model="none", sources={{"moon": {{}}}}) as engine:
            engine.add([clew.Record("moon", "a lamp"), clew.Record("keel", "lead")])
            print([hit.id for hit in engine.search("light")], engine.search("light")[0].source)
        try:
            clew.open({str(tmp_path / "f")!r}, sources={{"moan": {{}}}})
        except clew.ConfigError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == "['moon'] moon"
    assert "did you mean 'moon'" in second


# ---------------------------------------------------------------------- while an engine is open


def test_an_edit_takes_effect_with_the_next_search(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none") as engine:
        engine.add([clew.Record("a", "keel")])
        asked = set(configured(tmp_path)) - {"graph"}  # of which none is built
        assert set(engine.search("keel").trace["sources"]) == asked
        file = tmp_path / "clew.toml"
        file.write_text('fusion = "rrf"\n[sources.tags]\nenabled = false\n')
        trace = engine.search("keel").trace
        assert trace["fusion"]["strategy"] == "rrf"
        assert "tags" not in trace["sources"]
        file.unlink()
        assert engine.search("keel").trace["fusion"]["strategy"] == "adaptive"


def test_an_edit_that_makes_no_sense_changes_nothing_and_is_said(tmp_path: Path) -> None:
    with clew.open(tmp_path, model="none", depth=7) as engine:
        engine.add([clew.Record("a", "keel")])
        file = tmp_path / "clew.toml"
        file.write_text("fusion = rrf")
        found = engine.search("keel")
        assert [hit.id for hit in found] == ["a"]
        assert any("clew.toml" in problem for problem in found.degraded)
        file.write_text("[sources.tagz]\n")
        assert any("did you mean 'tags'" in problem for problem in engine.search("keel").degraded)
        file.write_text("rrf_k = 7\n")
        mended = engine.search("keel")
        assert not any("clew.toml" in problem for problem in mended.degraded)
        assert (engine.config.rrf_k, engine.config.depth) == (7, 7)
