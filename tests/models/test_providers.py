"""What is known of models behind an API, and the names their vectors go by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.config import Config
from clew.models import configured_name, load_configured, model_name, resolve, traits
from clew.models.api import count_tokens, cut_text
from clew.models.providers import CARDS, PROVIDERS, find_api_model

ASKED = "Represent this sentence for searching relevant passages: "


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROVIDERS["openai"].keys, *PROVIDERS["gemini"].keys, "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("spec", "document", "query"),
    [
        ("openai:text-embedding-3-small", "", ""),
        ("openai:nomic-embed-text:v1.5", "search_document: ", "search_query: "),
        ("openai:nomic-ai/nomic-embed-text-v1.5", "search_document: ", "search_query: "),
        ("openai:text-embedding-nomic-embed-text-v1.5", "search_document: ", "search_query: "),
        ("openai:intfloat/e5-large-v2", "passage: ", "query: "),
        ("openai:intfloat/multilingual-e5-base", "passage: ", "query: "),
        ("openai:BAAI/bge-large-en-v1.5", "", ASKED),
        ("openai:bge-m3", "", ""),
        ("openai:mxbai-embed-large", "", ASKED),
        ("openai:snowflake-arctic-embed:33m", "", ASKED),
        ("openai:snowflake-arctic-embed2", "", "query: "),
        ("openai:Snowflake/snowflake-arctic-embed-l-v2.0", "", "query: "),
        ("openai:embeddinggemma", "title: none | text: ", "task: search result | query: "),
        ("gemini:gemini-embedding-2", "title: none | text: ", "task: search result | query: "),
        ("openai:some-model-of-mine", "", ""),
    ],
)
def test_a_model_is_known_by_the_names_that_servers_give_it(
    spec: str, document: str, query: str
) -> None:
    found = find_api_model(spec)
    assert found is not None
    assert (found.document.prefix, found.query.prefix) == (document, query)
    assert (found.document.task, found.query.task) == ("", "")


def test_an_instruct_model_is_not_taken_for_the_plain_one() -> None:
    found = find_api_model("openai:intfloat/multilingual-e5-large-instruct")
    assert found is not None and found.document.prefix == ""
    assert found.query.prefix.startswith("Instruct: ") and found.query.prefix.endswith("\nQuery: ")


def test_no_beginning_of_the_table_is_hidden_by_a_longer_one() -> None:
    for beginning, known in CARDS.items():
        found = find_api_model(f"gemini:{beginning}")
        assert found is not None and found.card is known, beginning


def test_gemini_has_task_types_at_its_own_address_only() -> None:
    at_home = find_api_model("gemini:gemini-embedding-001")
    assert at_home is not None
    assert at_home.document.task == "RETRIEVAL_DOCUMENT"
    assert at_home.query.task == "RETRIEVAL_QUERY"
    behind = find_api_model("gemini:gemini-embedding-001", base_url="http://localhost/v1")
    other = find_api_model("openai:gemini-embedding-001")
    assert behind is not None and other is not None
    assert not any((*behind.document, *behind.query, *other.document, *other.query))


@pytest.mark.parametrize("spec", ["openai", "gemini"])
def test_a_provider_alone_means_its_usual_model(spec: str) -> None:
    assert resolve(spec) == f"{spec}:{PROVIDERS[spec].model}"
    assert model_name(spec) == model_name(resolve(spec))


def test_gemini_alone_is_the_model_of_3072_dimensions() -> None:
    found = find_api_model("gemini")
    assert found is not None
    assert (found.name, found.card.dim, found.card.tokens) == ("gemini-embedding-001", 3072, 2048)


# ---------------------------------------------------------------- names


def test_the_name_tells_provider_model_dimension_and_roles_apart() -> None:
    url = "http://localhost:11434/v1"
    names = [
        model_name("gemini:gemini-embedding-001"),
        model_name("gemini:gemini-embedding-001@768"),
        model_name("gemini:gemini-embedding-001", base_url=url),  # without task types
        model_name("gemini:gemini-embedding-2"),
        model_name("openai:gemini-embedding-001"),
        model_name("openai:nomic-embed-text"),
        model_name("openai:nomic-embed-text", query_prefix="q: "),
        model_name("openai:nomic-embed-text", document_prefix="q: "),
        model_name("openai:nomic-embed-text", document_prefix="d: ", query_prefix="q: "),
        model_name("openai:plain"),
        model_name("openai:plain", query_prefix="q: "),
        model_name("openai:plain", document_prefix="q: "),
        model_name("openai:plain@256"),
    ]
    assert len(set(names)) == len(names), names


def test_vectors_made_without_roles_are_not_mixed_with_those_made_with_them() -> None:
    """Before there were roles, this model's vectors went by its bare name."""
    assert model_name("openai:nomic-embed-text") != "openai:nomic-embed-text"
    assert model_name("openai:text-embedding-3-small") == "openai:text-embedding-3-small"


def test_the_same_model_has_one_name_however_it_is_written() -> None:
    assert model_name("gemini:gemini-embedding-001@3072") == model_name("gemini")
    assert model_name("gemini:models/gemini-embedding-001") == model_name("gemini")
    assert model_name("openai:m", dim=8) == model_name("openai:m@8") == "openai:m@8"


@pytest.mark.parametrize(
    "config",
    [
        Config(model="gemini"),
        Config(model="gemini:gemini-embedding-001@768"),
        Config(model="gemini", model_url="http://localhost:1/v1"),
        Config(model="openai:e5-small", model_query_prefix="ask: "),
        Config(model="openai:mine", model_document_prefix="doc: ", model_query_prefix="ask: "),
        Config(model="none"),
    ],
)
def test_the_name_is_known_without_loading_anything(config: Config) -> None:
    assert configured_name(config) == load_configured(config).model


def test_fusion_is_told_how_much_of_a_text_the_model_reads() -> None:
    assert traits(model_name("gemini")).window == 4 * 2048
    assert traits(model_name("openai:bge-large@256")).window == 4 * 512
    assert traits("openai:unheard-of").window == 0
    assert traits(model_name("bge-small")).scripts == ("latin",)


# ---------------------------------------------------------------- tokens


@given(st.text(), st.integers(1, 50))
def test_a_cut_text_is_a_beginning_that_fits_and_no_shorter_than_it_must_be(
    text: str, most: int
) -> None:
    kept = cut_text(text, most)
    assert text.startswith(kept)
    assert count_tokens(kept) <= most
    longer = text[: len(kept) + 1]
    assert longer == kept or count_tokens(longer) > most or len(longer) > 3 * most


def test_chinese_counts_for_more_than_english() -> None:
    assert count_tokens("字" * 300) > 2 * count_tokens("a" * 300)
