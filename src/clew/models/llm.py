"""Answers in words from any endpoint that speaks OpenAI's chat API: OpenAI, Gemini, Ollama, vLLM.

Whoever asks can do without (queries are taken apart by rules as well), so nothing is tried for
long: one budget of seconds covers everything, and it holds even where a server sends its answer
letter by letter. Every fault is a ModelError that says what happened.
"""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clew.background import within
from clew.config import Config
from clew.errors import ModelError
from clew.models.apis import PROVIDERS, address, key_of
from clew.models.endpoint import advice, asked_wait, load_openai, open_client, out_of_quota
from clew.protocols import LLM

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["UNNAMED", "ApiLLM", "load_llm"]

UNNAMED = "gemini-2.5-flash"
"""The model where an endpoint is configured without one."""
PAUSE = 0.5
"""Seconds before the one repetition, where a rate limit does not say how long it lasts."""
HINTS = {
    400: "check the model's name, and that it is one to chat with",
    404: "check the model's name, and llm_url (`clew config llm_url`)",
}


def load_llm(config: Config) -> LLM | None:
    """The chat model of the settings; None where there is none. Nothing is sent yet."""
    provider, named, name = config.llm.partition(":")
    if not named or provider not in PROVIDERS:
        provider, name = "openai", config.llm
    name = name or (UNNAMED if config.llm_url or provider == "gemini" else "")
    if not name:
        return None
    # Part of the key, so that a change in the environment counts.
    url, _ = address(provider, config.llm_url or None)
    return _loaded(name, provider, config.llm_url or None, url, key_of(provider))


@lru_cache(maxsize=8)
def _loaded(
    name: str, provider: str, base_url: str | None, url: str, api_key: str | None
) -> ApiLLM:
    """Kept, so that the next question finds the connection open."""
    return ApiLLM(name, provider=provider, base_url=base_url, api_key=api_key)


class ApiLLM:
    """One question, one answer, over HTTP."""

    def __init__(
        self,
        model_name: str,
        *,
        provider: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.model = model_name
        self._url, self._own = address(provider, base_url)
        self._keys = PROVIDERS[provider].keys
        self._api_key = api_key or key_of(provider)
        self._options: dict[str, Any] = {"temperature": 0}
        self._lock = threading.Lock()
        self._opened: OpenAI | None = None

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        """What the model says to `prompt`; a rate limit is waited for once, if time allows."""
        client = self._client()  # first: importing it takes a second
        end = time.monotonic() + seconds
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        try:
            # The client's own time-out starts anew with every byte.
            answer = within(seconds, lambda: self._request(client, messages, end))
        except (TimeoutError, load_openai().APITimeoutError):
            raise self._error(f"gave no answer within {seconds:g} s: is it running?") from None
        return self._words(answer)

    def _request(self, client: OpenAI, messages: list[Any], end: float) -> Any:
        openai = load_openai()
        waited = False
        while True:
            left = max(end - time.monotonic(), 0.001)
            try:
                return client.chat.completions.create(
                    model=self.model, messages=messages, timeout=left, **self._options
                )
            except openai.RateLimitError as error:
                wait = asked_wait(error)
                wait = PAUSE if wait is None else wait
                if waited or out_of_quota(error) or time.monotonic() + wait >= end:
                    raise self._error(advice(error, HINTS, keys=self._keys)) from error
                waited = True
                time.sleep(wait)
            except openai.BadRequestError as error:
                if not self._options or "temperature" not in str(error.message).lower():
                    raise self._error(advice(error, HINTS, keys=self._keys)) from error
                self._options = {}  # some models take no temperature but their own
            except openai.APIStatusError as error:
                raise self._error(advice(error, HINTS, keys=self._keys)) from error
            except openai.APITimeoutError:
                raise
            except openai.APIConnectionError as error:
                why = error.__cause__ or error
                raise self._error(f"cannot be reached ({why}): is it running?") from error
            except (openai.OpenAIError, ValueError) as error:
                raise self._error(f"sent an answer that cannot be read ({error})") from error

    def _client(self) -> OpenAI:
        with self._lock:
            if self._opened is None:
                self._opened = open_client(
                    self.model,
                    base_url=self._url,
                    api_key=self._api_key,
                    keyless=self._own,
                    keys=self._keys,
                    timeout=60.0,  # each request brings its own
                    setting="llm_url",
                )
            return self._opened

    def _words(self, answer: Any) -> str:
        try:
            choice = answer.choices[0]
            content, refusal = choice.message.content, getattr(choice.message, "refusal", None)
        except (AttributeError, IndexError, TypeError):
            raise self._error(
                "sent something other than a chat completion: check llm_url (`clew config llm_url`)"
            ) from None
        if refusal:
            raise self._error(f"refused ({refusal!r:.200}): ask in other words")
        if getattr(choice, "finish_reason", None) == "content_filter":
            raise self._error("withheld its answer (content filter): ask in other words")
        text = content.strip() if isinstance(content, str) else ""
        if not text:
            raise self._error("sent an empty answer: try another model (`clew config llm`)")
        return text

    def _error(self, what: str) -> ModelError:
        return ModelError(f"{self.model} at {self._url} {what}")

    def __repr__(self) -> str:
        return f"ApiLLM({self.model!r})"
