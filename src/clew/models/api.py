"""Embeddings over HTTP: OpenAI, Gemini, and whatever speaks OpenAI's API (Ollama, vLLM)."""

from __future__ import annotations

import base64
import logging
import random
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.background import within
from clew.errors import ModelError, counted
from clew.models.providers import (
    LARGEST_ANSWER,
    MOST_TOKENS,
    OWN_TEXTS,
    OWN_TOKENS,
    PROVIDERS,
    WHOLE_ANSWER,
    ApiModel,
    Endpoint,
    Role,
    asked_wait,
    find_address,
    is_out_of_quota,
    is_too_long,
    load_openai,
)
from clew.types import Vector, Vectors
from clew.validate import is_vector, unit

MAX_WAIT = 60.0
"""Seconds: a server that asks for more than this is better asked again by the user."""
BACKOFF = 0.5
"""Seconds before the first repetition; they double with each."""
BYTES = 32
"""Of a number in an answer, at most; DIMENSIONS of a vector where that is not known yet."""
DIMENSIONS = 8192
SHORTEST = 200
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

    A `dim` that is asked of the model is part of its identity. Without it, the length is what the
    model gives. `batch` and `batch_tokens` bound one request, `max_tokens` one text; what is known
    of provider and model stands in providers.py.
    """

    def __init__(
        self,
        model: ApiModel,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        batch: int | None = None,
        batch_tokens: int | None = None,
        max_tokens: int | None = None,
        timeout: float = 30.0,
        retries: int = 4,
    ) -> None:
        self.model = model.identity
        self._found = model
        own, service = find_address(model.provider, base_url)[1], PROVIDERS[model.provider]
        self._dim = model.dim or model.card.dim
        self._batch = batch or (OWN_TEXTS if own else service.texts)
        largest = self._batch * (self._dim or DIMENSIONS) * BYTES + LARGEST_ANSWER
        self._endpoint = Endpoint(
            *(self.model, model.provider, base_url, api_key), setting="model_url", largest=largest
        )
        self._batch_tokens = batch_tokens or (OWN_TOKENS if own else service.tokens)
        self._max_tokens = max_tokens or model.card.tokens or MOST_TOKENS
        self._timeout = timeout
        self._retries = retries
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
        row: Vector = self._embed([self._fit(text, role)], role)[0]
        return row

    def _parts(self, texts: Sequence[str], role: Role) -> Iterator[list[str]]:
        """Requests of at most `batch` texts and, unless one alone is longer, `batch_tokens`."""
        part: list[str] = []
        total = 0
        for text in texts:
            text = self._fit(text, role)
            size = count_tokens(role.prefix + text)
            if part and (len(part) == self._batch or total + size > self._batch_tokens):
                yield part
                part, total = [], 0
            part.append(text)
            total += size
        yield part

    def _fit(self, text: str, role: Role) -> str:
        """Make it what the endpoint takes: not empty, all of it Unicode, not too long."""
        text = text.encode("utf-8", "replace").decode()
        whole = len(text)
        text = cut_text(text, max(self._max_tokens - count_tokens(role.prefix), 1))
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

    def _embed(self, texts: list[str], role: Role) -> Vectors:
        """Where the endpoint finds this too long it gets less at a time, then less of the text:
        its tokens are its own to count."""
        try:
            answer = self._request(texts, role)
        except _TooLongError:
            if len(texts) > 1:
                half = len(texts) // 2
                parts = texts[:half], texts[half:]
                return np.concatenate([self._embed(part, role) for part in parts])
            if len(texts[0]) < SHORTEST:
                raise
            shorter = texts[0][: len(texts[0]) // 2]
            self._tell("takes no more", len(texts[0]), len(shorter))
            return self._embed([shorter], role)
        refuse = self._endpoint.error
        try:
            indices, rows = _read_answer(answer)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            raise refuse(f"sent an answer that is not a list of vectors ({error!s:.200})") from None
        if sorted(indices) != list(range(len(texts))):
            raise refuse(f"sent vectors {indices!s:.200} for {len(texts)} texts")
        rows = [rows[i] for i in np.argsort(indices)]
        for row in rows:
            if not is_vector(row):
                raise refuse("sent a vector that is empty or not finite")
            self._dim = self._dim or row.size
            if row.size != self._dim:
                raise refuse(
                    f"sent a vector of {row.size} numbers where {self._dim} were expected: name "
                    f"the model with what it gives ({self._found.name}@{row.size}), and index again"
                )
        return unit(np.stack(rows))

    def _request(self, texts: list[str], role: Role) -> Any:
        """One request, repeated while there is hope."""
        client, openai = self._endpoint.client(self._timeout), load_openai()
        texts = [role.prefix + text for text in texts]
        ask = partial(self._ask_gemini if role.task else self._ask, client, texts, role.task)
        for attempt in range(self._retries + 1):
            wait = None
            try:
                return within(self._timeout * WHOLE_ANSWER, ask)
            except openai.APIStatusError as error:
                long = is_too_long(error)
                passing = error.status_code in (408, 409, 429) or error.status_code >= 500
                if attempt == self._retries or not passing or long or is_out_of_quota(error):
                    advice = self._endpoint.advice(error, HINTS)
                    raise self._endpoint.error(
                        advice, _TooLongError if long else ModelError
                    ) from error
                wait = asked_wait(error)
            except (TimeoutError, openai.APIConnectionError) as error:
                if attempt == self._retries:
                    raise self._endpoint.error(self._describe_silence(error)) from error
            except Exception as error:
                raise self._endpoint.unreadable(error) from error
            if wait is None:
                # Jitter, so that clients that failed together do not come back together.
                wait = BACKOFF * 2**attempt * random.uniform(0.5, 1.0)
            time.sleep(min(wait, MAX_WAIT))
        raise AssertionError("unreachable")

    def _ask(self, client: Any, texts: list[str], _: str) -> Any:
        # Floats are not the client's default: Gemini and older vLLM refuse base64.
        options: dict[str, Any] = {"dimensions": self._found.dim} if self._found.dim else {}
        return client.embeddings.create(
            model=self._found.name, input=texts, encoding_format="float", **options
        )

    def _ask_gemini(self, client: Any, texts: list[str], task: str) -> Any:
        """Gemini's own method, beside its compatible endpoint: the only one that takes a task type.

        It wants the key in a header of its own, and refuses a request with two.
        """
        path = f"models/{self._found.name}"
        each: dict[str, Any] = {"model": path, "taskType": task}
        if self._found.dim:
            each["outputDimensionality"] = self._found.dim
        requests = [{**each, "content": {"parts": [{"text": text}]}} for text in texts]
        headers = {"Authorization": load_openai().Omit(), "x-goog-api-key": client.api_key}
        return client.post(
            f"{self._endpoint.url.rstrip('/').removesuffix('openai')}{path}:batchEmbedContents",
            cast_to=object,
            body={"requests": requests},
            options={"headers": headers},
        )

    def _describe_silence(self, error: Exception) -> str:
        what = f"cannot be reached ({error.__cause__ or error})"
        if isinstance(error, load_openai().APITimeoutError):
            what = f"gave no answer within {self._timeout:g} s"
        elif isinstance(error, TimeoutError):
            what = f"gave no whole answer within {self._timeout * WHOLE_ANSWER:g} s"
        return f"{what}, {counted(self._retries + 1, 'time')}: is it running?"

    def __repr__(self) -> str:
        return f"ApiEmbedder({self.model!r})"


def _read_answer(answer: Any) -> tuple[list[int], list[npt.NDArray[np.float64]]]:
    """Vectors, and which text each is of. What is not an answer raises whatever comes of it."""
    if isinstance(answer, dict):
        found = [item["values"] for item in answer["embeddings"]]
        indices = list(range(len(found)))
    else:
        found = [item.embedding for item in answer.data]
        # Gemini leaves out an index of 0, some gateways send 0 for all: then the order counts.
        indices = [int(item.index or 0) for item in answer.data]
        if not any(indices):
            indices = list(range(len(found)))
    return indices, [_read_row(each) for each in found]


def _read_row(embedding: Any) -> npt.NDArray[np.float64]:
    """The numbers of one vector: a list, or base64 of float32 where a server sends that anyway."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype="<f4").astype(np.float64)
    return np.asarray(embedding, dtype=np.float64)


def count_tokens(text: str) -> int:
    """About how many tokens a text is, rather too many than too few: models differ in how they cut
    it, and their tokenizers are not here. English has four characters a token, Chinese one."""
    plain = len(text.encode("ascii", "ignore"))
    return plain // 3 + len(text) - plain + 1


def cut_text(text: str, most: int) -> str:
    """The beginning of a text, of about so many tokens."""
    text = text[: 3 * most]
    if count_tokens(text) <= most:
        return text
    return text[: bisect_right(range(len(text)), most, key=lambda n: count_tokens(text[:n])) - 1]
