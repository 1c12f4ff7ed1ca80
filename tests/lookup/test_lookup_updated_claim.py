"""Scenario: an updated claim is visible. The next lookup finds the new text and not the old one."""

from __future__ import annotations

from pathlib import Path

import clew
from clew import ExternalLookupResult, Search

from hashing import HashingEmbedder


def slot(found: object) -> str | None:
    assert isinstance(found, ExternalLookupResult)
    answered: str | None = found.trace["cache"]["slot"]
    return answered


def test_search_reflects_updated_claim(search: Search, storage: clew.Engine) -> None:
    # Given a claim that was found, and whose answer is kept
    assert search.external_lookup("soup")[0].id == "dinner"
    assert slot(search.external_lookup("soup", return_handles=True)) == "primary"
    # When it is updated
    storage.add([{"id": "dinner", "content": "We had lasagne for dinner."}])
    storage.embed()
    # Then the very next lookup finds it by its new text and not by its old one
    (first, *_) = search.external_lookup("lasagne")
    assert first.id == "dinner" and "lasagne" in first.content
    old = search.external_lookup("soup", return_handles=True)
    assert slot(old) is None
    assert all("soup" not in hit.content for hit in old)


def test_an_update_by_another_process_s_engine_is_seen_too(
    search: Search, storage: clew.Engine, tmp_path: Path
) -> None:
    assert search.external_lookup("soup")[0].id == "dinner"
    with clew.open(tmp_path / "storage", embedder=HashingEmbedder()) as other:
        other.add([{"id": "dinner", "content": "We had lasagne for dinner."}])
        other.embed()
    assert search.external_lookup("lasagne")[0].id == "dinner"


def test_a_deleted_claim_is_gone(search: Search, storage: clew.Engine) -> None:
    assert search.external_lookup("soup")[0].id == "dinner"
    storage.remove("dinner")
    assert "dinner" not in {hit.id for hit in search.external_lookup("soup")}


def test_an_answer_of_an_old_state_is_not_served_through_an_older_form_of_its_key(
    storage: clew.Engine, tmp_path: Path
) -> None:
    """The oldest form says nothing of the storage's state, and both lookups share it."""
    file = tmp_path / "kept.json"
    with Search(storage, cache_file=file) as search:
        search.external_lookup("soup")
    storage.add([{"id": "dinner", "content": "We had lasagne for dinner."}])
    storage.embed()
    with Search(storage, cache_file=file) as search:
        found = search.external_lookup("soup", return_handles=True)
        assert slot(found) is None
        assert all("soup" not in hit.content for hit in found)


def test_an_old_snapshot_answers_where_nothing_can_say_how_fresh_it_is(tmp_path: Path) -> None:
    import json

    from clew.cache import LookupCache

    def pages(query: str, limit: int) -> list[dict[str, str]]:
        return [{"id": "p", "text": "keel"}]

    with Search(backends={"pages": pages}) as search:
        found = search.external_lookup("keel", return_handles=True)
        assert isinstance(found, ExternalLookupResult)
    file = tmp_path / "cache.json"
    LookupCache().save(file)
    spy = LookupCache()
    with Search(backends={"pages": pages}, cache_file=file) as search:
        search.cache = spy
        search.external_lookup("keel")
        spy.save(file)
    (saved,) = json.loads(file.read_text())["answers"]
    legacy = next(name for name in saved["keys"] if name.startswith("backend="))
    row = {"query": legacy, "backend": "pages", "results": [{"id": "old", "content": "keel"}]}
    file.write_text(json.dumps({"_default": {"1": row}}))
    with Search(backends={"pages": pages}, cache_file=file) as search:
        for expected in ("legacy", "primary"):
            found = search.external_lookup("keel", return_handles=True)
            assert slot(found) == expected and [hit.id for hit in found] == ["old"]
            assert found.by_backend == {"pages": found.results}  # type: ignore[union-attr]
