"""Models behind an API: who serves them, what each takes, and the name its vectors go by.

Everything that Clew knows of such models without asking is here. Nothing is sent from here.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = [
    "PROVIDERS",
    "ApiModel",
    "Provider",
    "Role",
    "address",
    "cut",
    "find_api_model",
    "key_of",
    "tokens",
]


class Provider(NamedTuple):
    """A service, and the most that one request to it may hold."""

    url: str
    keys: tuple[str, ...]
    """Environment variables that may hold the key; the first that is set counts."""
    model: str
    """The one that is meant where none is named."""
    texts: int
    tokens: int


class Role(NamedTuple):
    """How a model is told what a text is for."""

    prefix: str = ""
    task: str = ""
    """Gemini's task type. Only its own endpoint takes one: the compatible one refuses every field
    that it does not know, and this is such a field."""


class Known(NamedTuple):
    """What its makers say of a model."""

    dim: int = 0
    tokens: int = 0
    """The longest text it reads; 0: not known."""
    document: Role = Role()
    query: Role = Role()


class ApiModel(NamedTuple):
    """A model as the settings name it."""

    provider: str
    name: str
    dim: int | None
    """Asked of it, where that is not its own."""
    known: Known
    document: Role
    query: Role

    @property
    def identity(self) -> str:
        """Vectors go by it. Its end changes with the roles: vectors that were made with others
        are not comparable."""
        from hashlib import blake2b  # brings OpenSSL, which no search with a local model needs

        roles = self.document, self.query
        mark = blake2b(repr([tuple(role) for role in roles]).encode(), digest_size=4).hexdigest()
        return (
            f"{self.provider}:{self.name}"
            + (f"@{self.dim}" if self.dim else "")
            + (f"#{mark}" if any(map(any, roles)) else "")
        )


PROVIDERS = {
    # platform.openai.com/docs/api-reference/embeddings/create
    "openai": Provider(
        url="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        model="text-embedding-3-small",
        texts=2048,
        tokens=300_000,
    ),
    # ai.google.dev/gemini-api/docs/openai. More than 100 texts are refused; of tokens only the
    # limit of the same models on Vertex AI is documented.
    "gemini": Provider(
        url="https://generativelanguage.googleapis.com/v1beta/openai/",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-embedding-001",
        texts=100,
        tokens=20_000,
    ),
}
OWN_TEXTS, OWN_TOKENS = 64, 50_000
"""For one request to an endpoint of the user's own, which may compute on a slow machine."""
LONGEST = 32_768
"""Tokens of one text where the model is not known: none here reads more."""

_ASKED = Role("Represent this sentence for searching relevant passages: ")
_ASKED_ZH = Role("为这个句子生成表示以用于检索相关文章：")
_WEB = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
_GEMMA = Role("title: none | text: "), Role("task: search result | query: ")
_NOMIC = Role("search_document: "), Role("search_query: ")
_E5 = Role("passage: "), Role("query: ")
_TASKS = Role(task="RETRIEVAL_DOCUMENT"), Role(task="RETRIEVAL_QUERY")

KNOWN = {
    "text-embedding-3-small": Known(1536, 8192),
    "text-embedding-3-large": Known(3072, 8192),
    "text-embedding-ada-002": Known(1536, 8192),
    "gemini-embedding-001": Known(3072, 2048, *_TASKS),
    "gemini-embedding-2": Known(3072, 8192, *_GEMMA),
    "embeddinggemma": Known(768, 2048, *_GEMMA),
    "nomic-embed-text": Known(768, 2048, *_NOMIC),  # Ollama's window; the model's own is 8,192
    "nomic-embed-text-v2": Known(768, 512, *_NOMIC),
    "e5-": Known(0, 512, *_E5),
    "e5-mistral": Known(4096, 4096, Role(), Role(f"{_WEB} ")),
    "multilingual-e5-": Known(0, 512, *_E5),
    "multilingual-e5-large-instruct": Known(1024, 512, Role(), Role(f"{_WEB} ")),
    "bge-large": Known(1024, 512, Role(), _ASKED),  # Ollama's name of bge-large-en
    "bge-base-en": Known(768, 512, Role(), _ASKED),
    "bge-small-en": Known(384, 512, Role(), _ASKED),
    "bge-large-zh": Known(1024, 512, Role(), _ASKED_ZH),
    "bge-base-zh": Known(768, 512, Role(), _ASKED_ZH),
    "bge-small-zh": Known(512, 512, Role(), _ASKED_ZH),
    "bge-m3": Known(1024, 8192),
    "mxbai-embed-large": Known(1024, 512, Role(), _ASKED),
    "snowflake-arctic-embed": Known(0, 512, Role(), _ASKED),
    "snowflake-arctic-embed2": Known(1024, 8192, Role(), Role("query: ")),
    "snowflake-arctic-embed-l-v2": Known(1024, 8192, Role(), Role("query: ")),
    "snowflake-arctic-embed-m-v2": Known(768, 8192, Role(), Role("query: ")),
    "qwen3-embedding": Known(0, LONGEST, Role(), Role(_WEB)),
    "all-minilm": Known(384, 256),
}
"""By how the name begins, as servers write it; the longest beginning counts."""


def find_api_model(
    spec: str,
    *,
    base_url: str | None = None,
    dim: int | None = None,
    document_prefix: str = "",
    query_prefix: str = "",
) -> ApiModel | None:
    """What `PROVIDER`, `PROVIDER:NAME` or `PROVIDER:NAME@DIM` names; None: nothing of the kind.

    Behind a `base_url` of the user's own there are no task types. Prefixes that are given take
    the place of those that are known.
    """
    provider, named, name = spec.partition(":")
    if provider not in PROVIDERS or (named and not name):
        return None
    if shorter := re.fullmatch(r"(.+)@([1-9]\d*)", name):
        name, dim = shorter[1], dim or int(shorter[2])
    name = name.removeprefix("models/") or PROVIDERS[provider].model
    known = _known(name)
    document, query = known.document, known.query
    if provider != "gemini" or base_url:
        document, query = document._replace(task=""), query._replace(task="")
    if document_prefix:
        document = document._replace(prefix=document_prefix)
    if query_prefix:
        query = query._replace(prefix=query_prefix)
    return ApiModel(provider, name, None if dim == known.dim else dim, known, document, query)


def _known(name: str) -> Known:
    # `nomic-ai/nomic-embed-text-v1.5` in vLLM, `nomic-embed-text:v1.5` in Ollama,
    # `text-embedding-nomic-embed-text-v1.5` in LM Studio
    plain = name.lower().rpartition("/")[2]
    for form in (plain, plain.removeprefix("text-embedding-")):
        if fitting := [beginning for beginning in KNOWN if form.startswith(beginning)]:
            return KNOWN[max(fitting, key=len)]
    return Known()


def address(provider: str, base_url: str | None = None) -> tuple[str, bool]:
    """Where its requests go, and whether that is a place of the user's own.

    `OPENAI_BASE_URL` and `GOOGLE_GEMINI_BASE_URL` are those of the makers' own clients.
    """
    if base_url := base_url or (provider == "openai" and os.environ.get("OPENAI_BASE_URL")) or "":
        return base_url, True
    url = PROVIDERS[provider].url
    if provider == "gemini" and (host := os.environ.get("GOOGLE_GEMINI_BASE_URL")):
        url = host.rstrip("/") + url[url.index("/v1beta") :]  # a relay of the same API
    return url, False


def key_of(provider: str) -> str | None:
    """The key in the environment. That it is there sends nothing anywhere."""
    return next((key for name in PROVIDERS[provider].keys if (key := os.environ.get(name))), None)


def tokens(text: str) -> int:
    """About how many tokens a text is, rather too many than too few: models differ in how they cut
    it, and their tokenizers are not here. English has four characters a token, Chinese one."""
    plain = len(text.encode("ascii", "ignore"))
    return plain // 3 + len(text) - plain + 1


def cut(text: str, most: int) -> str:
    """Its beginning, of about so many tokens."""
    text = text[: 3 * most]
    if tokens(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
