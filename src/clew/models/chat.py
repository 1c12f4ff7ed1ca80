"""Answers in words from any endpoint that speaks OpenAI's chat API: OpenAI, Gemini, Ollama, vLLM.

Whoever asks can do without (queries are taken apart by rules as well), so nothing is tried for
long: one budget of seconds covers everything, and it holds even where a server sends its answer
letter by letter. Every fault is a ModelError that says what happened.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from clew.background import within
from clew.config import Config
from clew.errors import ModelError
from clew.models.providers import (
    PROVIDERS,
    Endpoint,
    asked_wait,
    find_address,
    find_key,
    is_out_of_quota,
    load_openai,
)
from clew.protocols import LLM

if TYPE_CHECKING:
    from openai import OpenAI

UNNAMED = "gemini-2.5-flash"
"""The model where an endpoint is configured without one."""
GIVE_UP = 3
"""Failures in a row after which a build does not ask again: every one may take seconds."""
PAUSE = 0.5
"""Seconds before the one repetition, where a rate limit does not say how long it lasts."""
NO_COMPLETION = "sent something other than a chat completion: check llm_url (`clew config llm_url`)"
EMPTY = "sent an empty answer: try another model (`clew config llm`)"
T = TypeVar("T")

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
    url, _ = find_address(provider, config.llm_url or None)
    key = find_key(provider, url, config.keys)
    return _load(name, provider, config.llm_url or None, url, key)


@lru_cache(maxsize=8)
def _load(name: str, provider: str, base_url: str | None, url: str, api_key: str | None) -> ApiLLM:
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
        self._endpoint = Endpoint(model_name, provider, base_url, api_key, setting="llm_url")
        self._options: dict[str, Any] = {"temperature": 0}

    def complete(self, system: str, prompt: str, *, seconds: float) -> str:
        """What the model says to `prompt`; a rate limit is waited for once, if time allows."""
        # First: importing it takes a second. Each request brings its own time-out.
        client = self._endpoint.client(60.0)
        end = time.monotonic() + seconds
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        try:
            # The client's own time-out starts anew with every byte.
            answer = within(seconds, lambda: self._request(client, messages, end))
        except (TimeoutError, load_openai().APITimeoutError):
            said = f"gave no answer within {seconds:g} s: is it running?"
            raise self._endpoint.error(said) from None
        return self._words(answer)

    def stream(self, system: str, prompt: str, *, seconds: float) -> Iterator[str]:
        """The same piece by piece, as it is said; `seconds` are for all of it."""
        client = self._endpoint.client(60.0)
        end = time.monotonic() + seconds
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        said: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
        left = threading.Event()

        def read() -> None:
            try:
                with self._request(client, messages, end, stream=True) as events:
                    for event in events:
                        if left.is_set():
                            return
                        if piece := self._piece(event):
                            said.put(piece)
                said.put(None)
            except Exception as error:  # whoever reads on gets it
                said.put(error)

        threading.Thread(target=read, daemon=True).start()
        empty = True
        try:
            while (piece := said.get(timeout=max(end - time.monotonic(), 0.001))) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                empty = False
                yield piece
        except (queue.Empty, load_openai().APITimeoutError):
            raise self._endpoint.error(f"had not finished after {seconds:g} s") from None
        except ModelError:
            raise
        except Exception as error:
            raise self._endpoint.unreadable(error) from error
        finally:
            left.set()
        if empty:
            raise self._endpoint.error(EMPTY)

    def _piece(self, event: Any) -> str:
        """What one event of a stream adds to the answer."""
        try:
            choice = event.choices[0] if event.choices else None
            text = choice.delta.content if choice is not None else None
        except (AttributeError, IndexError, TypeError):
            raise self._endpoint.error(NO_COMPLETION) from None
        if choice is not None and choice.finish_reason == "content_filter":
            raise self._endpoint.error("withheld its answer (content filter): ask in other words")
        return text if isinstance(text, str) else ""

    def _request(
        self, client: OpenAI, messages: list[Any], end: float, *, stream: bool = False
    ) -> Any:
        openai, endpoint = load_openai(), self._endpoint
        waited = False
        while True:
            left = max(end - time.monotonic(), 0.001)
            try:
                asked = {**self._options, **({"stream": True} if stream else {})}
                return client.chat.completions.create(
                    model=self.model, messages=messages, timeout=left, **asked
                )
            except openai.APIStatusError as error:
                refused = endpoint.error(endpoint.advice(error, HINTS))
                if isinstance(error, openai.RateLimitError):
                    wait = asked_wait(error)
                    wait = PAUSE if wait is None else wait
                    if waited or is_out_of_quota(error) or time.monotonic() + wait >= end:
                        raise refused from error
                    waited = True
                    time.sleep(wait)
                else:
                    about = str(error.message).lower() if error.status_code == 400 else ""
                    if not self._options or "temperature" not in about:
                        raise refused from error
                    self._options = {}  # some models take no temperature but their own
            except openai.APITimeoutError:
                raise
            except openai.APIConnectionError as error:
                why = error.__cause__ or error
                raise endpoint.error(f"cannot be reached ({why}): is it running?") from error
            except Exception as error:
                raise endpoint.unreadable(error) from error

    def _words(self, answer: Any) -> str:
        refuse = self._endpoint.error
        try:
            choice = answer.choices[0]
            content, refusal = choice.message.content, getattr(choice.message, "refusal", None)
        except (AttributeError, IndexError, TypeError):
            raise refuse(NO_COMPLETION) from None
        if refusal:
            raise refuse(f"refused ({refusal!r:.200}): ask in other words")
        if getattr(choice, "finish_reason", None) == "content_filter":
            raise refuse("withheld its answer (content filter): ask in other words")
        text = content.strip() if isinstance(content, str) else ""
        if not text:
            raise refuse(EMPTY)
        return text

    def __repr__(self) -> str:
        return f"ApiLLM({self.model!r})"


# ---------------------------------------------------------------- JSON in an answer

MOST_CHARACTERS = 40_000
"""Of an answer that are looked at."""
MOST_TRIES = 50
"""Brackets of an answer that may be the beginning of a value."""
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile("</think>", re.IGNORECASE)
_OPENING = re.compile(r"[\[{]")


def ask_for(
    llm: LLM,
    system: str,
    prompt: str,
    read: Callable[[str], T | None],
    expected: str,
    *,
    seconds: float,
) -> T:
    """What `read` makes of a chat model's answer; a ModelError where that is nothing."""
    answer = llm.complete(system, prompt, seconds=seconds)
    if (found := read(answer)) is None:
        raise ModelError(
            f"{llm.model} answered with something other than {expected} "
            f"({' '.join(answer.split())[:80]!r}): try another model (`clew config llm`)"
        )
    return found


class BuildModel:
    """A chat model as one build asks it; counts what that took."""

    def __init__(self, llm: LLM, *, seconds: float):
        self._llm, self._seconds = llm, seconds
        self.model = llm.model
        self.calls = self.failures = 0
        self.problem = ""  # the last thing that went wrong
        self._failed = 0  # in a row
        self.lock = threading.Lock()

    @property
    def given_up(self) -> bool:
        return self._failed >= GIVE_UP

    def ask(
        self, system: str, prompt: str, read: Callable[[str], T | None], expected: str
    ) -> T | None:
        """Do as `ask_for` does; None where it has failed, or has too often."""
        with self.lock:
            if self.given_up:
                return None
            self.calls += 1
        try:
            found = ask_for(self._llm, system, prompt, read, expected, seconds=self._seconds)
        except ModelError as error:
            with self.lock:
                self.failures += 1
                self._failed += 1
                self.problem = str(error)
            return None
        self._failed = 0
        return found


def strip_thoughts(answer: str) -> str:
    """What is meant for the reader."""
    answer = answer[:MOST_CHARACTERS]
    # Behind the last end nothing is looked for: each beginning would look through all the rest.
    end = max((found.end() for found in _THOUGHT_END.finditer(answer)), default=0)
    return _THOUGHT.sub("", answer[:end]) + answer[end:]


def find_values(answer: str) -> Iterator[Any]:
    """The JSON lists and objects that stand in an answer (bare, fenced, among other words), the
    outermost first."""
    text, at = strip_thoughts(answer), 0
    for _ in range(MOST_TRIES):
        if (match := _OPENING.search(text, at)) is None:
            return
        try:
            value, at = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):
            at = match.end()
        else:
            yield value
