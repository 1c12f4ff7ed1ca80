from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import config
from clew.config import (
    PROFILES,
    Config,
    about,
    all_settings,
    check_weights,
    load,
    origins,
    profile,
)
from clew.errors import ConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's own shell says must not decide."""
    for variable in [name for name in os.environ if name.startswith("CLEW_")]:
        monkeypatch.delenv(variable)


def write(folder: Path, text: str) -> Path:
    file = folder / "clew.toml"
    file.write_text(text, "utf-8")
    return file


# ---------------------------------------------------------------- layers


def test_without_any_layer_the_defaults_hold(tmp_path: Path) -> None:
    shipped = tomllib.loads((PROFILES / "default.toml").read_text("utf-8"))
    assert load(tmp_path) == load() == Config(**shipped)
    assert origins(tmp_path) == {}


def test_each_layer_wins_over_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "depth = 11\nrrf_k = 12\n")
    assert (load(tmp_path).depth, load(tmp_path).rrf_k) == (11, 12)
    monkeypatch.setenv("CLEW_DEPTH", "21")
    assert (load(tmp_path).depth, load(tmp_path).rrf_k) == (21, 12)
    assert load(tmp_path, {"depth": 31}).depth == 31
    assert load(tmp_path, {"depth": 31}).rrf_k == 12
    assert origins(tmp_path) == {"depth": "environment", "rrf_k": "clew.toml"}


def test_an_engine_is_opened_with_these_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'model = "none"\ndepth = 11\nfusion = "dbsf"\ndeadline = 2\n')
    monkeypatch.setenv("CLEW_FUSION", "rrf")
    with clew.open(tmp_path, deadline=3) as engine:
        found = engine.config
    assert (found.model, found.depth, found.fusion, found.deadline) == ("none", 11, "rrf", 3.0)


OWN = profile("default")["confidence_high"], profile("default")["confidence_med"]


@pytest.mark.parametrize(
    ("given", "high", "med"),
    [
        ({}, *OWN),
        ({"fusion": "convex"}, *OWN),
        ({"fusion": "rrf"}, *OWN),
        ({"fusion": "weighted_rrf"}, 0.03, 0.02),
        ({"profile": "athena"}, 0.03, 0.02),
        ({"profile": "athena", "fusion": "adaptive"}, *OWN),
        ({"profile": "athena", "fusion": "rrf"}, *OWN),
        ({"fusion": "weighted_rrf", "confidence_high": 0.025}, 0.025, 0.02),
        ({"profile": "athena", "confidence_med": 0.01}, 0.03, 0.01),
        ({"confidence_high": 0.9, "confidence_med": 0.5}, 0.9, 0.5),
    ],
    ids=str,
)
def test_thresholds_of_confidence_go_with_the_fusion_unless_they_are_given(
    tmp_path: Path, given: dict[str, Any], high: float, med: float
) -> None:
    write(tmp_path, "".join(f"{name} = {value!r}\n" for name, value in given.items()))
    for found in (load(None, given), load(tmp_path)):
        assert (found.confidence_high, found.confidence_med) == (high, med)


def test_a_folder_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path / "absent") == load()


@pytest.mark.parametrize(
    ("word", "expected"),
    [("true", True), ("1", True), ("YES", True), ("false", False), ("0", False), ("No", False)],
)
def test_the_environment_speaks_in_words(
    monkeypatch: pytest.MonkeyPatch, word: str, expected: bool
) -> None:
    monkeypatch.setenv("CLEW_OFFLINE", word)
    assert load().offline is expected


def test_values_come_in_the_type_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "deadline = 3\nmax_file_mb = 0.5\n")
    monkeypatch.setenv("CLEW_THREADS", "4")
    found = load(tmp_path)
    assert (found.deadline, type(found.deadline)) == (3.0, float)
    assert (found.threads, type(found.threads)) == (4, int)
    assert found.max_file_mb == 0.5


# ---------------------------------------------------------------- mistakes


def test_an_unknown_key_names_its_file_and_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, "deph = 11\n")
    with pytest.raises(ConfigError, match="unknown setting 'deph': did you mean 'depth'") as caught:
        load(tmp_path)
    assert str(file) in str(caught.value)


def test_an_unknown_argument_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'modell': did you mean 'model'"):
        clew.open(tmp_path, modell="none")
    assert not (tmp_path / ".clew").exists()


@pytest.mark.parametrize("text", ["depth = ", "[weights", "depth 11", "a = 1\na = 2", '\0"'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(file) in str(caught.value)
    assert "correct it or delete it" in str(caught.value)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"clew\.toml"):
        load(tmp_path)


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "clew.toml").mkdir()
    with pytest.raises(ConfigError, match=r"clew\.toml"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('depth = "many"', "depth"),
        ("depth = true", "depth"),
        ("depth = -1", "depth"),
        ("depth = [1]", "depth"),
        ("depth = 10.5", "depth"),
        ("depth = inf", "depth"),
        ("rerank_blend = 1.5", "rerank_blend"),
        ("depth = nan", "depth"),
        pytest.param(f"depth = 1{'0' * 400}", "depth", id="huge depth"),
        ("deadline = -0.5", "deadline"),
        ("deadline = nan", "deadline"),
        ("deadline = inf", "deadline"),
        ('deadline = "soon"', "deadline"),
        ('offline = "perhaps"', "offline"),
        ("offline = 2", "offline"),
        ("model = 5", "model"),
        ("model = false", "model"),
        ('fusion = "rff"', "did you mean 'rrf'"),
        ('synchronous = "OFF"', "FULL"),
        ("weights = 3", "weights"),
        ('weights = ["keyword"]', "weights"),
        ("[weights]\nkeyword = -1", "keyword"),
        ("[weights]\nkeyword = nan", "keyword"),
        pytest.param(f"[weights]\nkeyword = 1{'0' * 400}", "keyword", id="huge weight"),
        ("[weights]\nkeyword = true", "keyword"),
        ('[weights]\nkeyword = "lots"', "keyword"),
        ("[weights.keyword]\nx = 1", "keyword"),
    ],
)
def test_a_wrong_value_names_file_and_setting(tmp_path: Path, line: str, name: str) -> None:
    file = write(tmp_path, line)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(file) in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CLEW_DEPTH", "many"),
        ("CLEW_DEPTH", ""),
        ("CLEW_DEPTH", "1e9999"),
        ("CLEW_DEADLINE", "inf"),
        ("CLEW_OFFLINE", "perhaps"),
        ("CLEW_FUSION", "rff"),
        ("CLEW_WEIGHTS", "keyword"),
        ("CLEW_WEIGHTS", "keyword=lots"),
        ("CLEW_WEIGHTS", "keyword=-1"),
        ("CLEW_LEAST_COSINE", "bge-small"),
        ("CLEW_LEAST_COSINE", "bge-small=2"),
    ],
)
def test_a_wrong_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable):
        load()


@pytest.mark.parametrize(
    "wrong", [{"depth": float("inf")}, {"depth": None}, {"model": None}], ids=str
)
def test_a_wrong_argument_is_a_config_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="arguments"):
        load(None, wrong)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("depth", "many", "a whole number of at least 1"),
        ("depth", 0, "a whole number of at least 1"),
        ("depth", 10.5, "a whole number of at least 1"),
        ("depth", None, "a whole number of at least 1"),
        ("deadline", "soon", "a number of at least 0"),
        ("deadline", float("nan"), "a number of at least 0"),
        ("max_file_mb", [1], "a number of at least 0"),
        ("offline", "perhaps", "true or false"),
        ("model_url", 5, "text"),
        ("weights", "keyword=lots", "keyword=1,vectors=0.5"),
        ("weights", "keyword", "keyword=1,vectors=0.5"),
    ],
)
def test_a_wrong_value_says_setting_value_and_what_is_expected(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {name: value})
    said = str(caught.value)
    assert said.startswith(f"arguments: {name} = {value!r}: expected ") and expected in said


@pytest.mark.parametrize("model", ["nope", "", "reranker-en", "openai:", "gemini:"])
def test_a_model_that_is_none_is_refused_with_those_that_are(tmp_path: Path, model: str) -> None:
    file = write(tmp_path, f'model = "{model}"\n')
    with pytest.raises(ConfigError, match="bge-small, minilm") as caught:
        load(tmp_path)
    assert str(file) in str(caught.value) and repr(model) in str(caught.value)


@pytest.mark.parametrize("model", ["minilm", "none", "openai:x", "gemini:x@768", "auto-api"])
def test_every_kind_of_model_is_taken(model: str) -> None:
    assert load(None, {"model": model}).model == model


@pytest.mark.parametrize(
    ("reranker", "says"),
    [
        ("reranker-em", "no reranker Clew knows: did you mean 'reranker-en'"),
        ("", "valid: reranker-en"),
        ("bge-small", "'bge-small' is an embedder, not a reranker: valid: reranker-en"),
    ],
)
def test_a_reranker_that_is_none_is_refused_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reranker: str, says: str
) -> None:
    file = write(tmp_path, f'reranker = "{reranker}"\n')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(f"{file}: reranker: ") and says in str(caught.value)
    monkeypatch.setenv("CLEW_RERANKER", reranker)
    with pytest.raises(ConfigError, match="CLEW_RERANKER"):
        load()


def test_a_reranker_that_is_one_is_taken() -> None:
    assert load(None, {"reranker": "reranker-en"}).reranker == "reranker-en"


# ---------------------------------------------------------------- weights


def test_weights_come_from_every_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "[weights]\nkeyword = 2\nvectors = 0.5\n")
    assert load(tmp_path).weights == {"keyword": 2.0, "vectors": 0.5}
    monkeypatch.setenv("CLEW_WEIGHTS", "keyword=1, vectors = 2.5,")
    assert load(tmp_path).weights == {"keyword": 1.0, "vectors": 2.5}
    assert load(tmp_path, {"weights": {"tags": 0}}).weights == {
        "keyword": 1.0,
        "vectors": 2.5,
        "tags": 0.0,
    }


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), True, "2", None, [1]], ids=repr)
def test_check_weights_refuses_what_is_no_weight(weight: Any) -> None:
    with pytest.raises(ConfigError, match="'keyword'"):
        check_weights({"keyword": weight})


def test_check_weights_gives_numbers() -> None:
    given = {"keyword": 1, "vectors": 0}
    checked = check_weights(given)
    assert checked == {"keyword": 1.0, "vectors": 0.0}
    assert checked is not given


# ---------------------------------------------------------------- what `clew config` prints


def test_every_setting_says_what_it_is_for() -> None:
    for setting in all_settings():
        said = about(setting.name)
        assert len(said) > 10 and said.endswith("."), setting.name


def test_about_an_unknown_setting_gives_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'deadline'"):
        about("dedline")


def test_every_default_passes_its_own_check() -> None:
    for setting in all_settings():
        default = getattr(Config(), setting.name)
        assert config.coerce(setting.name, default, "default") == default
