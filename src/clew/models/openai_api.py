"""Embeddings over HTTP: OpenAI, Gemini, and whatever speaks OpenAI's API (Ollama, vLLM)."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.background import within
from clew.errors import ConfigError, ModelError, counted
from clew.models import apis, wire
from clew.models.endpoint import (
    advice,
    asked_wait,
    load_openai,
    open_client,
    out_of_quota,
    too_long,
)
from clew.models.vectors import unit
from clew.types import Vector, Vectors

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["ApiEmbedder"]

MAX_WAIT = 60.0  # a server that asks for more than this is better asked again by the user
WHOLE = 4
"""Time-outs that a whole answer may take: the client's own begins anew with every byte."""
LEAST = 200
"""Characters: a model that finds this too long finds everything too long."""
HINTS = {
    400: "check the model's name and `dim`, and that no text is longer than it reads",
    404: "check the model's name, and model_url (`clew config model_url`)",
}

log = logging.getLogger("clew.models")


class _TooLongError(ModelError):
    """The endpoint found what it was sent too long."""


class ApiEmbedder:
    """Sentences to vectors of length 1 over HTTP. Nothing is sent before the first use.

    `dim` asks the endpoint for shorter vectors, where the model can do that, and becomes part of
    the identity. Without it, the length is what the model gives. `batch` and `batch_tokens` bound
    one request, `max_tokens` one text; what is known of provider and model stands in `apis.py`.
    """

    def __init__(
        self,
        model_name: str,
        *,
        provider: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        dim: int | None = None,
        document_prefix: str = "",
        query_prefix: str = "",
        batch: int | None = None,
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        found = apis.find_api_model(
            f"{provider}:{model_name}",
            base_url=base_url,
            dim=dim,
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )
        if found is None:
            raise ConfigError(f"no model {model_name!r} of {provider!r}: see docs/models.md")
        self.model = found.identity
        self._found = found
        self._url, own = apis.address(provider, base_url)
        self._own = own
        self._api_key = api_key or apis.key_of(provider)
        self._dim = found.dim or found.known.dim
        service = apis.PROVIDERS[provider]
        self._batch = batch or (apis.OWN_TEXTS if own else service.texts)
        self._batch_tokens = batch_tokens or (apis.OWN_TOKENS if own else service.tokens)
        self._max_tokens = max_tokens or found.known.tokens or apis.LONGEST
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._lock = threading.Lock()
        self._opened: OpenAI | None = None
        self._told = False

    @property
    def dim(self) -> int:
        """Length of a vector. Where it is not known yet this asks the endpoint, and may fail."""
        if not self._dim:
            self.embed_query("How long is a vector?")
        return self._dim

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        role = self._found.document
        return np.concatenate([self._embed(part, role) for part in self._parts(texts, role)])

    def embed_query(self, text: str) -> Vector:
        role = self._found.query
        row: Vector = self._embed([self._fitting(text, role)], role)[0]
        return row

    # ------------------------------------------------------------------ what is sent

    def _parts(self, texts: Sequence[str], role: apis.Role) -> Iterator[list[str]]:
        """Requests of at most `batch` texts and, unless one alone is longer, `batch_tokens`."""
        part: list[str] = []
        total = 0
        for text in texts:
            text = self._fitting(text, role)
            size = apis.tokens(role.prefix + text)
            if part and (len(part) == self._batch or total + size > self._batch_tokens):
                yield part
                part, total = [], 0
            part.append(text)
            total += size
        yield part

    def _fitting(self, text: str, role: apis.Role) -> str:
        """As the endpoint takes it: not empty, nothing that is not Unicode, not too long."""
        text = text.encode("utf-8", "replace").decode()
        whole = len(text)
        text = apis.cut(text, max(self._max_tokens - apis.tokens(role.prefix), 1))
        if len(text) < whole:
            self._tell(f"reads {self._max_tokens:,} tokens", whole, len(text))
        return text if text.strip() else " "  # OpenAI answers 400 to an empty string

    def _tell(self, why: str, whole: int, read: int) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "%s %s: of a text of %s characters the first %s are embedded, "
                "and longer ones likewise (said once)",
                *(self.model, why, f"{whole:,}", f"{read:,}"),
            )

    # ------------------------------------------------------------------ what comes back

    def _embed(self, texts: list[str], role: apis.Role) -> Vectors:
        """Where the endpoint finds this too long it gets less at a time, then less of the text:
        its tokens are its own to count."""
        try:
            answer = self._request(texts, role)
        except _TooLongError:
            if len(texts) > 1:
                half = len(texts) // 2
                parts = texts[:half], texts[half:]
                return np.concatenate([self._embed(part, role) for part in parts])
            if len(texts[0]) < LEAST:
                raise
            shorter = texts[0][: len(texts[0]) // 2]
            self._tell("takes no more", len(texts[0]), len(shorter))
            return self._embed([shorter], role)
        try:
            indices, rows = wire.read(answer)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self._error(f"sent an answer that is not a list of vectors ({error})") from None
        if sorted(indices) != list(range(len(texts))):
            raise self._error(f"sent vectors {indices} for {len(texts)} texts")
        rows = [rows[i] for i in np.argsort(indices)]
        for row in rows:
            if row.ndim != 1 or not row.size or not np.isfinite(row).all():
                raise self._error("sent a vector that is empty or not finite")
            self._dim = self._dim or row.size
            if row.size != self._dim:
                raise self._error(
                    f"sent a vector of {row.size} numbers where {self._dim} were expected: name "
                    f"the model with what it gives ({self._found.name}@{row.size}), and index again"
                )
        return unit(np.stack(rows))

    def _request(self, texts: list[str], role: apis.Role) -> Any:
        """One request, repeated while there is hope."""
        client, openai = self._client(), load_openai()
        ask = partial(wire.ask, client, self._url, self._found, texts, role)
        for attempt in range(self._retries + 1):
            wait = None
            try:
                return within(self._timeout * WHOLE, ask)
            except openai.APIStatusError as error:
                if attempt == self._retries or not _passing(error):
                    said = advice(error, HINTS, keys=self._keys)
                    raise self._error(said, _TooLongError if too_long(error) else None) from error
                wait = asked_wait(error)
            except (TimeoutError, openai.APIConnectionError) as error:
                if attempt == self._retries:
                    raise self._error(self._silence(error, attempt + 1)) from error
            except (openai.OpenAIError, ValueError) as error:
                # Malformed JSON, or no data at all: not what this API answers.
                raise self._error(f"sent an answer that cannot be read ({error})") from error
            if wait is None:
                # Jitter, so that clients that failed together do not come back together.
                wait = self._backoff * 2**attempt * random.uniform(0.5, 1.0)
            time.sleep(min(wait, MAX_WAIT))
        raise AssertionError("unreachable")

    def _client(self) -> OpenAI:
        with self._lock:
            if self._opened is None:
                self._opened = open_client(
                    self.model,
                    base_url=self._url,
                    api_key=self._api_key,
                    keyless=self._own,
                    keys=self._keys,
                    timeout=self._timeout,
                    setting="model_url",
                )
            return self._opened

    @property
    def _keys(self) -> tuple[str, ...]:
        return apis.PROVIDERS[self._found.provider].keys

    def _silence(self, error: Exception, times: int) -> str:
        what = f"cannot be reached ({error.__cause__ or error})"
        if isinstance(error, load_openai().APITimeoutError):
            what = f"gave no answer within {self._timeout:g} s"
        elif isinstance(error, TimeoutError):
            what = f"gave no whole answer within {self._timeout * WHOLE:g} s"
        return f"{what}, {counted(times, 'time')}: is it running?"

    def _error(self, what: str, kind: type[ModelError] | None = None) -> ModelError:
        return (kind or ModelError)(f"{self.model} at {self._url} {what}")

    def __repr__(self) -> str:
        return f"ApiEmbedder({self.model!r})"


def _passing(error: Any) -> bool:
    """Whether the same request may succeed later."""
    status: int = error.status_code
    return (status in (408, 409, 429) or status >= 500) and not (
        out_of_quota(error) or too_long(error)
    )
