"""Token codes on disk: as good as they have to be, found by what was said, and safe to lose."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.index.token_codes import TokenCodes
from clew.types import Vectors

DIM = 96
RANDOM = np.random.default_rng(7)
CENTRES = RANDOM.normal(size=(300, DIM))


def digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


def rows(count: int) -> Vectors:
    """As token vectors lie: around common meanings."""
    made = CENTRES[RANDOM.integers(0, len(CENTRES), count)] + RANDOM.normal(
        scale=0.5, size=(count, DIM)
    )
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def passages(count: int) -> dict[bytes, Vectors]:
    return {digest(f"passage {i}"): rows(3 + i % 60) for i in range(count)}


def opened(place: Path, *, bits: int = 4, model: str = "colbert@1") -> TokenCodes:
    return TokenCodes(place / "tokens-x", model=model, dim=DIM, bits=bits)


def filled(place: Path, texts: dict[bytes, Vectors], *, bits: int = 4) -> TokenCodes:
    codes = opened(place, bits=bits)
    codes.train(np.concatenate(list(texts.values())), tokens=40_000)
    assert codes.add(texts)
    return codes


@pytest.mark.parametrize(("bits", "bytes_", "error"), [(4, 52, 0.012), (2, 28, 0.05)])
def test_codes_are_small_and_score_as_the_rows_do(
    tmp_path: Path, bits: int, bytes_: int, error: float
) -> None:
    texts = passages(400)
    codes = filled(tmp_path, texts, bits=bits)
    count = sum(map(len, texts.values()))
    books = sum(file.stat().st_size for file in (tmp_path / "tokens-x").glob("codebook-*"))
    assert codes.figures()["tokens"] == count
    assert (codes.figures()["bytes"] - books) / count <= bytes_
    query = rows(20)
    found = codes.score(query, list(texts))
    assert list(found) == list(texts)
    for name, of in texts.items():
        decoded = codes.rows(name)
        assert decoded is not None
        np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-5)
        assert found[name] == pytest.approx((query @ decoded.T).max(axis=1).mean(), abs=2e-3)
        assert found[name] == pytest.approx((query @ of.T).max(axis=1).mean(), abs=error)


def test_what_is_there_is_not_added_again_and_others_see_it(tmp_path: Path) -> None:
    texts = passages(50)
    codes, other = filled(tmp_path, texts), opened(tmp_path)
    assert len(other.find(list(texts))) == 50 and not other.find([digest("else")])
    before = codes.figures()
    codes.add(texts)
    assert codes.figures() == before
    codes.add({digest("new"): rows(5)})
    assert other.find([digest("new")]).keys() == {digest("new")}


def test_what_a_killed_process_had_begun_is_cut_off(tmp_path: Path) -> None:
    texts = passages(50)
    codes = filled(tmp_path, texts)
    scores = codes.score(rows(1)[:1] * 0 + 1, list(texts))
    for file in (tmp_path / "tokens-x").glob("*.bin"):
        with file.open("ab") as stream:
            stream.write(b"torn")
    again = opened(tmp_path)
    assert again.score(rows(1)[:1] * 0 + 1, list(texts)) == scores and not again.damaged()
    again.add({digest("new"): rows(9)})
    assert len(opened(tmp_path).find([*texts, digest("new")])) == 51
    assert not opened(tmp_path).damaged()


@pytest.mark.parametrize("kind", ["codes", "passages", "codebook"])
@pytest.mark.parametrize("harm", ["missing", "short", "flipped"])
def test_damage_is_noticed_and_made_up_for(tmp_path: Path, kind: str, harm: str) -> None:
    texts = passages(60)
    filled(tmp_path, texts)
    (file,) = (tmp_path / "tokens-x").glob(f"{kind}-*")
    data = file.read_bytes()
    if harm == "missing":
        file.unlink()
    elif harm == "short":
        file.write_bytes(data[: len(data) // 2])
    else:
        at = len(data) // 2
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
    codes = opened(tmp_path)
    assert codes.damaged()
    if (kind, harm) == ("codes", "flipped"):  # too many to look at on opening: they are when read
        found = codes.score(rows(4), list(texts))
        assert len(found) == 59 and codes.harmed == 1
        (lost,) = texts.keys() - found
        assert codes.rows(lost) is None
        codes.keep_only(list(texts), always=True)
        assert not codes.damaged() and codes.find(list(texts)).keys() == found.keys()
        assert codes.add({lost: texts[lost]}) and len(codes.score(rows(4), list(texts))) == 60
        return
    assert not codes.find(list(texts)) and not codes.score(rows(4), list(texts))
    assert not codes.add(texts)
    codes.keep_only(list(texts))
    assert not (tmp_path / "tokens-x").exists()
    assert len(filled(tmp_path, texts).find(list(texts))) == 60


def test_codes_of_another_model_or_form_are_not_read(tmp_path: Path) -> None:
    texts = passages(30)
    filled(tmp_path, texts)
    assert not opened(tmp_path, model="colbert@2").find(list(texts))
    assert not opened(tmp_path, bits=2).find(list(texts))


def test_what_is_gone_goes_when_it_is_most_or_must(tmp_path: Path) -> None:
    texts = passages(60)
    codes = filled(tmp_path, texts)
    left = list(texts)[20:]
    scores = codes.score(rows(1) * 0 + 1, left)
    codes.keep_only(left)
    assert len(codes.find(list(texts))) == 60
    codes.keep_only(left, always=True)
    assert set(codes.find(list(texts))) == set(left)
    assert codes.score(rows(1) * 0 + 1, left) == scores and not codes.damaged()
    codes.keep_only(left[:5])
    assert set(opened(tmp_path).find(list(texts))) == set(left[:5])


def test_a_codebook_that_is_outgrown_is_made_anew(tmp_path: Path) -> None:
    texts = passages(600)
    first = dict(list(texts.items())[:30])
    codes = opened(tmp_path)
    sample = np.concatenate(list(first.values()))
    codes.train(sample, tokens=len(sample))
    codes.add(texts)
    assert codes.outgrown
    query = rows(12)
    wanted = {name: float((query @ of.T).max(axis=1).mean()) for name, of in texts.items()}
    codes.retrain()
    assert not codes.outgrown and not codes.damaged()
    found = opened(tmp_path).score(query, list(texts))
    assert found == pytest.approx(wanted, abs=0.03)


def test_searches_make_a_codebook_once_they_have_enough(tmp_path: Path) -> None:
    codes, query = opened(tmp_path), rows(6)
    few, more = passages(20), {digest(f"more {i}"): rows(200) for i in range(25)}
    codes.keep(few)
    assert codes.files() is None and codes.score(query, list(few)).keys() == few.keys()
    codes.keep(more)
    assert opened(tmp_path).score(query, [*few, *more]).keys() == {*few, *more}


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 40))
def test_scoring_all_at_once_is_scoring_each(lengths: list[int], asked: int) -> None:
    texts = {digest(f"passage {i}"): rows(length) for i, length in enumerate(lengths)}
    query = rows(asked)
    with TemporaryDirectory() as place:
        codes = filled(Path(place), {**texts, digest("others"): rows(600)})
        together = codes.score(query, list(texts))
        assert together.keys() == texts.keys()
        for name, score in together.items():
            assert score == pytest.approx(codes.score(query, [name])[name], abs=1e-5)
            read = codes.rows(name)  # the same codes, put together
            assert read is not None
            plain = float((query @ read.T).max(axis=1).mean())
            assert score == pytest.approx(plain, abs=2e-3)  # a byte says a row's length


@pytest.mark.parametrize(("bits", "most"), [(4, 0.02), (2, 0.16)])
def test_little_is_lost_of_a_residual(bits: int, most: float) -> None:
    from clew.index.token_codes import Codebook

    some = rows(4_000)
    book = Codebook.train(some, bits=bits, most=64)
    codes = book.encode(some)
    near = book.centroids[codes[:, :2].copy().view("<u2").ravel()]
    read = book.decode(codes)
    assert ((some - read) ** 2).sum() < most * ((some - near) ** 2).sum()


def test_digests_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    alike = {b"clewclew" + bytes([i] * 8): rows(5) for i in range(3)}
    codes = filled(tmp_path, {**passages(20), **alike})
    found = codes.find([*alike, b"clewclew" + bytes([9] * 8)])
    assert found.keys() == alike.keys() and len(set(found.values())) == 3


def test_a_passage_without_tokens_is_known_and_has_no_score(tmp_path: Path) -> None:
    texts = {**passages(20), digest("nothing"): np.zeros((0, DIM), np.float32)}
    texts |= {digest("last"): rows(7)}
    codes = filled(tmp_path, texts)
    assert codes.find([digest("nothing")]) and not codes.damaged()
    found = codes.score(rows(3), list(texts))
    assert found.keys() == texts.keys() - {digest("nothing")} and not codes.harmed
    assert not codes.score(rows(3), [digest("nothing")])


def test_what_waits_for_a_codebook_may_be_taken_by_another_search_meanwhile(
    tmp_path: Path,
) -> None:
    codes = opened(tmp_path)

    class Taken(dict[bytes, Vectors]):
        def __contains__(self, key: object) -> bool:
            codes._waiting = {}
            return super().__contains__(key)

    texts = passages(2)
    codes._waiting = Taken(texts)
    assert set(codes.score(rows(4), list(texts))) == set(texts)


def test_codes_that_another_process_makes_anew_during_a_search_are_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = passages(60)
    codes, other = filled(tmp_path, texts), opened(tmp_path)
    digests = list(texts)
    now = codes.files

    def swap() -> object:
        found = now()
        other.keep_only(digests[::-1][:20], always=True)
        return found

    monkeypatch.setattr(codes, "files", swap)
    assert set(codes.score(rows(4), digests)) == set(digests)
    assert codes.harmed == 0
