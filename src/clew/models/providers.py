"""Models behind an API: who serves them, what each takes, the name its vectors go by, and the
client of an endpoint that speaks OpenAI's API.

What Clew knows of such models without asking is here. Nothing is sent before a client is opened.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import ModelError
from clew.trust import find_origin, hide_password, user_folder

if TYPE_CHECKING:
    from openai import OpenAI


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


class ModelCard(NamedTuple):
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
    card: ModelCard
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
MOST_TOKENS = 32_768
"""Of one text where the model is not known: none here reads more."""

_SEARCH = Role("Represent this sentence for searching relevant passages: ")
_SEARCH_ZH = Role("为这个句子生成表示以用于检索相关文章：")
_WEB = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
_GEMMA = Role("title: none | text: "), Role("task: search result | query: ")
_NOMIC = Role("search_document: "), Role("search_query: ")
_E5 = Role("passage: "), Role("query: ")
_TASKS = Role(task="RETRIEVAL_DOCUMENT"), Role(task="RETRIEVAL_QUERY")

CARDS = {
    "text-embedding-3-small": ModelCard(1536, 8192),
    "text-embedding-3-large": ModelCard(3072, 8192),
    "text-embedding-ada-002": ModelCard(1536, 8192),
    "gemini-embedding-001": ModelCard(3072, 2048, *_TASKS),
    "gemini-embedding-2": ModelCard(3072, 8192, *_GEMMA),
    "embeddinggemma": ModelCard(768, 2048, *_GEMMA),
    "nomic-embed-text": ModelCard(768, 2048, *_NOMIC),  # Ollama's window; the model's own is 8,192
    "nomic-embed-text-v2": ModelCard(768, 512, *_NOMIC),
    "e5-": ModelCard(0, 512, *_E5),
    "e5-mistral": ModelCard(4096, 4096, Role(), Role(f"{_WEB} ")),
    "multilingual-e5-": ModelCard(0, 512, *_E5),
    "multilingual-e5-large-instruct": ModelCard(1024, 512, Role(), Role(f"{_WEB} ")),
    "bge-large": ModelCard(1024, 512, Role(), _SEARCH),  # Ollama's name of bge-large-en
    "bge-base-en": ModelCard(768, 512, Role(), _SEARCH),
    "bge-small-en": ModelCard(384, 512, Role(), _SEARCH),
    "bge-large-zh": ModelCard(1024, 512, Role(), _SEARCH_ZH),
    "bge-base-zh": ModelCard(768, 512, Role(), _SEARCH_ZH),
    "bge-small-zh": ModelCard(512, 512, Role(), _SEARCH_ZH),
    "bge-m3": ModelCard(1024, 8192),
    "mxbai-embed-large": ModelCard(1024, 512, Role(), _SEARCH),
    "snowflake-arctic-embed": ModelCard(0, 512, Role(), _SEARCH),
    "snowflake-arctic-embed2": ModelCard(1024, 8192, Role(), Role("query: ")),
    "snowflake-arctic-embed-l-v2": ModelCard(1024, 8192, Role(), Role("query: ")),
    "snowflake-arctic-embed-m-v2": ModelCard(768, 8192, Role(), Role("query: ")),
    "qwen3-embedding": ModelCard(0, MOST_TOKENS, Role(), Role(_WEB)),
    "all-minilm": ModelCard(384, 256),
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
    card = find_card(name)
    tasks = provider == "gemini" and not base_url
    document, query = (
        Role(prefix or role.prefix, role.task if tasks else "")
        for prefix, role in ((document_prefix, card.document), (query_prefix, card.query))
    )
    return ApiModel(provider, name, None if dim == card.dim else dim, card, document, query)


def find_card(name: str) -> ModelCard:
    """What is known of a model of this name."""
    # `nomic-ai/nomic-embed-text-v1.5` in vLLM, `nomic-embed-text:v1.5` in Ollama,
    # `text-embedding-nomic-embed-text-v1.5` in LM Studio
    plain = name.lower().rpartition("/")[2]
    for form in (plain, plain.removeprefix("text-embedding-")):
        if fitting := [beginning for beginning in CARDS if form.startswith(beginning)]:
            return CARDS[max(fitting, key=len)]
    return ModelCard()


def find_address(provider: str, base_url: str | None = None) -> tuple[str, bool]:
    """Where its requests go, and whether that is a place of the user's own.

    `OPENAI_BASE_URL` and `GOOGLE_GEMINI_BASE_URL` are those of the makers' own clients.
    """
    if base_url := base_url or (provider == "openai" and os.environ.get("OPENAI_BASE_URL")) or "":
        return base_url, True
    url = PROVIDERS[provider].url
    if provider == "gemini" and (host := os.environ.get("GOOGLE_GEMINI_BASE_URL")):
        url = host.rstrip("/") + url[url.index("/v1beta") :]  # a relay of the same API
    return url, False


def find_key(
    provider: str, address: str = "", bound: Mapping[str, str] | None = None
) -> str | None:
    """The key in the environment. That it is there sends nothing anywhere.

    Of an `address` the one that is `bound` to it (the setting `keys`): NO_KEY where that is none,
    unless it is the provider's own or stands in the environment as the key does.
    """
    place = find_origin(address)
    if (name := (bound or {}).get(place)) is not None:
        if name:
            return os.environ.get(name) or NO_KEY
        meant = PROVIDERS[provider].url, find_address(provider)[0]
        if place not in map(find_origin, meant):
            return NO_KEY
    return next((key for name in PROVIDERS[provider].keys if (key := os.environ.get(name))), None)


# ---------------------------------------------------------------- endpoints

NO_CLIENT = "models over an API need the openai client: pip install 'clew-search[openai]'"
NO_KEY = "none"
"""Sent where there is none: the client insists on a key, local servers ignore it."""
MOST_WORDS = 300
"""Characters of a server's own message that are passed on: some answer with a page of HTML."""
WHOLE_ANSWER = 4
"""Time-outs that a whole answer may take: the client's own begins anew with every byte."""
LARGEST_ANSWER = 4 << 20
"""Bytes of an answer in words."""
SHORTEST_KEY = 6
"""Characters of a key or password that is worth hiding where an answer repeats it."""
MOST_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
_TOO_LONG = re.compile(
    r"context.?length|too (?:long|large)|tokens per request|maximum number of tokens"
    r"|(?:less|fewer) than \d+ tokens|at most \d+ requests",
    re.IGNORECASE,
)
"""In the words of OpenAI, Gemini, Ollama, vLLM and TEI."""


class Endpoint:
    """Where a model is asked: its address, its key, and a client that is opened on first use."""

    def __init__(
        self,
        name: str,
        provider: str,
        base_url: str | None,
        api_key: str | None,
        *,
        setting: str,
        largest: int = LARGEST_ANSWER,
    ):
        """`setting` is the one that names an endpoint of the user's own for this model; `largest`
        the bytes that an answer may have."""
        self._name, self._setting, self._largest = name, setting, largest
        self.url, self.own = find_address(provider, base_url)
        self._keys = PROVIDERS[provider].keys
        self._api_key = api_key or find_key(provider)
        self._lock = threading.Lock()
        self._client: OpenAI | None = None

    def client(self, timeout: float) -> OpenAI:
        """A client that repeats nothing by itself: its delays are fixed, and two layers of retries
        would multiply."""
        with self._lock:
            if self._client is None:
                openai = load_openai()
                if self._api_key is None and not self.own:
                    raise ModelError(needs_key(self._name, self._keys, self._setting))
                # The account's ids are in the environment for OpenAI; nobody else is told them.
                ids = ("OpenAI-Organization", "OpenAI-Project")
                told = "OPENAI_API_KEY" in self._keys
                connection = _make_client(openai, self._largest, timeout, self._api_key)
                try:
                    self._client = openai.OpenAI(
                        api_key=self._api_key or NO_KEY,
                        base_url=self.url,
                        http_client=connection,
                        timeout=timeout,
                        max_retries=0,
                        default_headers=None if told else {each: openai.Omit() for each in ids},
                    )
                except Exception:  # httpx's own; its words may have a part of the password
                    raise self.error(
                        f"has no address that can be read: check {self._setting}; in a password "
                        "write %2F for / and %40 for @"
                    ) from None
            return self._client

    def error(self, what: str, kind: type[ModelError] = ModelError) -> ModelError:
        return kind(f"{self._name} at {hide_password(self.url)} {what}")

    def unreadable(self, error: Exception) -> ModelError:
        """The error for whatever the client stumbles over: malformed JSON, nested without end, no
        data at all, a redirect to no address."""
        return self.error(f"sent an answer that cannot be read ({error!s:.200})")

    def advice(self, error: Any, hints: Mapping[int, str]) -> str:
        """What the endpoint answered, and what to do about it."""
        common = {
            401: f"check the key in {' or '.join(self._keys)}",
            403: "this key may not use this model",
            **dict.fromkeys(REDIRECTS, f"if its address has changed, set {self._setting} to that"),
            429: "the rate limit or quota is used up: wait, or raise it with the provider",
        }
        # Gemini answers 400 to a wrong key.
        status = 401 if "API_KEY_INVALID" in str(error.body) else error.status_code
        if status in (401, 403) and self._api_key == NO_KEY:
            common[status] = (
                "no key was sent, as keys go only where your own configuration says. To send one, "
                f"write into {user_folder() / 'clew.toml'} below a line [keys]: "
                f'"{find_origin(self.url)}" = "{self._keys[0]}"'
            )
        hint = {**common, **hints}.get(status, "the endpoint is in trouble: try again later")
        said = " ".join(str(error.message).split())[:MOST_WORDS]
        if status in REDIRECTS:
            said = f"on to {hide_password(error.response.headers.get('location', ''))!r:.200}"
        return f"answered {error.status_code} ({said}): {hint}"


def _make_client(openai: Any, largest: int, seconds: float, key: str | None) -> Any:
    """One that follows no answer to another host, reads none for ever and keeps no key in one."""

    class BoundClient(openai.DefaultHttpxClient):  # type: ignore[misc]
        def send(self, request: Any, **options: Any) -> Any:
            piecewise = options.get("stream", False)
            options |= {"stream": True, "follow_redirects": False}
            request.headers["Accept-Encoding"] = "gzip"  # others grow without bound in one step
            end = time.monotonic() + WHOLE_ANSWER * seconds
            place = find_origin(str(request.url))
            for left in reversed(range(MOST_REDIRECTS + 1)):
                answer = super().send(request, **options)
                onward = answer.next_request
                if not left or onward is None or find_origin(str(onward.url)) != place:
                    break
                answer.close()
                request = onward
            sent = answer.request
            login = sent.headers.get("authorization", "").rpartition(" ")[2]
            known = (key, login, sent.url.password, sent.url.query.decode("ascii"))
            secrets = [secret for secret in known if secret and len(secret) >= SHORTEST_KEY]
            headers = answer.headers.copy()
            for name in ("content-encoding", "content-length", "transfer-encoding"):
                headers.pop(name, None)
            for secret in secrets:
                for name, value in headers.items():
                    headers[name] = value.replace(secret, "*")

            def read() -> Iterator[bytes]:
                size = 0
                with contextlib.closing(answer):
                    if answer.headers.get("content-encoding", "gzip") not in ("gzip", "identity"):
                        raise openai.OpenAIError("it is packed in a way that was not asked for")
                    for piece in answer.iter_bytes():
                        if (size := size + len(piece)) > largest:
                            raise openai.OpenAIError(f"it has more than {largest >> 20} MB")
                        if time.monotonic() > end:
                            raise openai.APITimeoutError(request=request)
                        yield piece

            def hide(data: bytes) -> bytes:
                for secret in secrets:
                    data = data.replace(secret.encode(), "…".encode())
                return data

            events = headers.get("content-type", "").startswith("text/event-stream")
            made = {"headers": headers, "request": request}
            if piecewise and events and answer.is_success:
                return type(answer)(answer.status_code, content=_hide_by_line(read(), hide), **made)
            return type(answer)(answer.status_code, content=hide(b"".join(read())), **made)

    return BoundClient(timeout=seconds)


def _hide_by_line(
    pieces: Iterator[bytes], hide: Callable[[bytes], bytes]
) -> Generator[bytes, None, None]:
    """What has no whole line yet waits: a key may be cut in two."""
    rest = b""
    with contextlib.closing(pieces):  # type: ignore[type-var]
        for piece in pieces:
            lines, newline, rest = (rest + piece).rpartition(b"\n")
            if newline:
                yield hide(lines + newline)
    if rest:
        yield hide(rest)


def load_openai() -> ModuleType:
    """The package, or an error that names the extra."""
    try:
        import openai
    except ImportError:
        raise ModelError(NO_CLIENT) from None
    return openai


def needs_key(name: str, keys: Sequence[str], setting: str) -> str:
    """What to do where there is none."""
    return (
        f"{name} needs a key: set {' or '.join(keys)}, or {setting} for an endpoint without one "
        f"(`clew config {setting} URL`)"
    )


def asked_wait(error: Any) -> float | None:
    """Seconds this answer asks to wait, in its header (RFC 9110, 10.2.3: a number or a date) or, as
    Gemini says it, in the body."""
    import email.utils

    value, wait = error.response.headers.get("retry-after", ""), math.nan
    try:
        wait = float(value)
    except ValueError:
        with contextlib.suppress(ValueError):
            wait = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    if not math.isnan(wait):
        return max(wait, 0.0)
    said = re.search(r"retryDelay\W+(\d+(?:\.\d+)?)s", str(error.body))
    return float(said[1]) if said else None


def is_out_of_quota(error: Any) -> bool:
    """A used-up quota also says 429, but waiting does not help; nor does it for one of a day."""
    return bool(error.code == "insufficient_quota" or "PerDay" in str(error.body))


def is_too_long(error: Any) -> bool:
    """Whether less text would have been taken. Servers say so in words and under any status."""
    said = f"{error.code} {error.message}"
    return error.status_code not in (401, 403, 404) and bool(_TOO_LONG.search(said))
