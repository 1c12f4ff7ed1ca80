"""Embeddings from any endpoint that speaks OpenAI's API: OpenAI, Gemini, Ollama, vLLM."""

from __future__ import annotations

import base64
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clew.errors import ModelError
from clew.models.endpoint import advice, load_openai, open_client, out_of_quota, retry_after
from clew.models.unit import unit
from clew.text.counted import counted
from clew.types import Vector, Vectors

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["ApiEmbedder"]

MAX_WAIT = 60.0  # a server that asks for more than this is better asked again by the user
KNOWN_DIMS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "gemini-embedding-001": 3072,
}
"""Saves these a request in every new process; others are asked for a vector to measure."""
HINTS = {
    400: "check the model's name and `dim`, and that no text is longer than it reads",
    404: "check the model's name, and model_url (`clew config model_url`)",
}


class ApiEmbedder:
    """Sentences to vectors of length 1 over HTTP. Nothing is sent before the first use.

    `dim` asks the endpoint for shorter vectors, where the model can do that, and becomes part of
    the identity. Without it, the length is what the model gives.
    """

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dim: int | None = None,
        batch: int = 64,
        batch_characters: int = 200_000,
        timeout: float = 30.0,
        retries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        self.model = f"openai:{model_name}" + (f"@{dim}" if dim else "")
        self._name = model_name
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._asked_dim = dim
        self._dim = dim or KNOWN_DIMS.get(model_name, 0)
        self._batch = batch
        self._batch_characters = batch_characters
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        self._lock = threading.Lock()
        self._opened: OpenAI | None = None

    @property
    def dim(self) -> int:
        """Length of a vector. Where it is not known yet this asks the endpoint, and may fail."""
        if not self._dim:
            self.embed_query("How long is a vector?")
        return self._dim

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        return np.concatenate([self._embed(part) for part in self._parts(texts)])

    def embed_query(self, text: str) -> Vector:
        row: Vector = self._embed([text])[0]
        return row

    def _parts(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Requests of at most `batch` texts and, unless one alone is longer, the character cap."""
        part: list[str] = []
        characters = 0
        for text in texts:
            if part and (
                len(part) == self._batch or characters + len(text) > self._batch_characters
            ):
                yield part
                part, characters = [], 0
            part.append(text)
            characters += len(text)
        yield part

    def _embed(self, texts: list[str]) -> Vectors:
        # OpenAI answers 400 to an empty string; a space is fine.
        answer = self._request([text if text.strip() else " " for text in texts])
        try:
            # Gemini leaves out an index of 0, some gateways send 0 for all: then the order counts.
            indices = [item.index or 0 for item in answer.data]
            if not any(indices):
                indices = list(range(len(indices)))
            if sorted(indices) != list(range(len(texts))):
                raise self._error(f"sent vectors {indices} for {len(texts)} texts")
            rows = [_row(answer.data[i].embedding) for i in np.argsort(indices)]
        except (TypeError, ValueError, AttributeError) as error:
            raise self._error(f"sent an answer that is not a list of vectors ({error})") from None
        for row in rows:
            if row.ndim != 1 or not row.size or not np.isfinite(row).all():
                raise self._error("sent a vector that is empty or not finite")
            self._dim = self._dim or row.size
            if row.size != self._dim:
                raise self._error(
                    f"sent a vector of {row.size} numbers where {self._dim} were expected: set "
                    "the model's `dim` to what it gives, and index again"
                )
        return unit(np.stack(rows))

    def _request(self, texts: list[str]) -> Any:
        """One request, repeated while there is hope."""
        client, openai = self._client(), load_openai()
        # Not the client's default: Gemini and older vLLM refuse base64.
        options: dict[str, Any] = {"encoding_format": "float"}
        if self._asked_dim:
            options["dimensions"] = self._asked_dim
        for attempt in range(self._retries + 1):
            try:
                return client.embeddings.create(model=self._name, input=texts, **options)
            except openai.APIStatusError as error:
                if attempt == self._retries or not _passing(error):
                    raise self._error(advice(error, HINTS)) from error
                wait = retry_after(error.response.headers)
            except openai.APIConnectionError as error:  # time-outs are among them
                if attempt == self._retries:
                    what = f"gave no answer within {self._timeout:g} s"
                    if not isinstance(error, openai.APITimeoutError):
                        what = f"cannot be reached ({error.__cause__ or error})"
                    raise self._error(
                        f"{what}, {counted(attempt + 1, 'time')}: is it running?"
                    ) from error
                wait = None
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
                    base_url=self._base_url,
                    api_key=self._api_key,
                    timeout=self._timeout,
                    setting="model_url",
                )
            return self._opened

    def _error(self, what: str) -> ModelError:
        return ModelError(f"{self.model} at {self._base_url or 'api.openai.com'} {what}")

    def __repr__(self) -> str:
        return f"ApiEmbedder({self.model!r})"


def _row(embedding: Any) -> npt.NDArray[np.float64]:
    """The numbers of one vector: a list, or base64 of float32 where a server sends that anyway."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype="<f4").astype(np.float64)
    return np.asarray(embedding, dtype=np.float64)


def _passing(error: Any) -> bool:
    """Whether the same request may succeed later."""
    status: int = error.status_code
    return (status in (408, 409, 429) or status >= 500) and not out_of_quota(error)
