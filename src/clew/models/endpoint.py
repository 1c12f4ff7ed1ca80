"""What every client of an endpoint that speaks OpenAI's API has in common."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clew.errors import ModelError

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = [
    "NO_CLIENT",
    "advice",
    "asked_wait",
    "load_openai",
    "needs_key",
    "open_client",
    "out_of_quota",
    "retry_after",
    "too_long",
]

NO_CLIENT = "models over an API need the openai client: pip install 'clew-search[openai]'"
WORDS = 300
"""Characters of a server's own message that are passed on: some answer with a page of HTML."""


def load_openai() -> ModuleType:
    """The package, or an error that names the extra."""
    try:
        import openai
    except ImportError:
        raise ModelError(NO_CLIENT) from None
    return openai


def open_client(
    name: str,
    *,
    base_url: str,
    api_key: str | None,
    keyless: bool,
    keys: Sequence[str],
    timeout: float,
    setting: str,
) -> OpenAI:
    """A client that repeats nothing by itself: its delays are fixed, and two layers of retries
    would multiply. `keyless` endpoints need no key; `setting` is the one that names such a one for
    this model, `keys` are where a key is looked for."""
    openai = load_openai()
    if api_key is None and not keyless:
        raise ModelError(needs_key(name, keys, setting))
    # The account's ids are in the environment for OpenAI, and nobody else is told them.
    ids = ("OpenAI-Organization", "OpenAI-Project")
    told = "OPENAI_API_KEY" in keys
    client: OpenAI = openai.OpenAI(
        # The client insists on a key, local servers ignore it.
        api_key=api_key or "none",
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
        default_headers=None if told else {each: openai.Omit() for each in ids},
    )
    return client


def needs_key(name: str, keys: Sequence[str], setting: str) -> str:
    """What to do where there is none."""
    return (
        f"{name} needs a key: set {' or '.join(keys)}, or {setting} for an endpoint without one "
        f"(`clew config {setting} URL`)"
    )


def retry_after(headers: Any) -> float | None:
    """Seconds the server asks to wait, from either form of the header (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds else None


def asked_wait(error: Any) -> float | None:
    """Seconds this answer asks to wait. Gemini says it in the body."""
    wait = retry_after(error.response.headers)
    if wait is None and (said := re.search(r"retryDelay\W+(\d+(?:\.\d+)?)s", str(error.body))):
        wait = float(said[1])
    return wait


def out_of_quota(error: Any) -> bool:
    """A used-up quota also says 429, but waiting does not help; nor does it for one of a day."""
    return bool(error.code == "insufficient_quota" or "PerDay" in str(error.body))


TOO_LONG = re.compile(
    r"context.?length|too (?:long|large)|tokens per request|maximum number of tokens"
    r"|(?:less|fewer) than \d+ tokens|at most \d+ requests",
    re.IGNORECASE,
)
"""In the words of OpenAI, Gemini, Ollama, vLLM and TEI."""


def too_long(error: Any) -> bool:
    """Whether less text would have been taken. Servers say so in words and under any status."""
    said = f"{error.code} {error.message}"
    return error.status_code not in (401, 403, 404) and bool(TOO_LONG.search(said))


def advice(
    error: Any, hints: Mapping[int, str], *, keys: Sequence[str] = ("OPENAI_API_KEY",)
) -> str:
    """What the endpoint answered, and what to do about it."""
    common = {
        401: f"check the key in {' or '.join(keys)}",
        403: "this key may not use this model",
        429: "the rate limit or quota is used up: wait, or raise it with the provider",
    }
    # Gemini answers 400 to a wrong key.
    status = 401 if "API_KEY_INVALID" in str(error.body) else error.status_code
    hint = {**common, **hints}.get(status, "the endpoint is in trouble: try again later")
    said = " ".join(str(error.message).split())[:WORDS]
    return f"answered {error.status_code} ({said}): {hint}"
