"""What every client of an endpoint that speaks OpenAI's API has in common."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clew.errors import ModelError

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["advice", "load_openai", "open_client", "out_of_quota", "retry_after"]

WORDS = 300
"""Characters of a server's own message that are passed on: some answer with a page of HTML."""


def load_openai() -> ModuleType:
    """The package, or an error that names the extra."""
    try:
        import openai
    except ImportError:
        raise ModelError(
            "models over an API need the openai client: pip install 'clew-search[openai]'"
        ) from None
    return openai


def open_client(
    name: str, *, base_url: str | None, api_key: str | None, timeout: float, setting: str
) -> OpenAI:
    """A client that repeats nothing by itself: its delays are fixed, and two layers of retries
    would multiply. `setting` is the one that names another endpoint for this model."""
    openai = load_openai()
    if api_key is None and base_url is None:
        raise ModelError(
            f"{name} needs a key: set OPENAI_API_KEY, or {setting} for an endpoint without one "
            f"(`clew config {setting} URL`)"
        )
    client: OpenAI = openai.OpenAI(
        # The client insists on a key, local servers ignore it.
        api_key=api_key or "none",
        base_url=base_url,
        timeout=timeout,
        max_retries=0,
    )
    return client


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


def out_of_quota(error: Any) -> bool:
    """A used-up quota also says 429, but waiting does not help."""
    return bool(error.code == "insufficient_quota")


def advice(error: Any, hints: Mapping[int, str]) -> str:
    """What the endpoint answered, and what to do about it."""
    common = {
        401: "check the key in OPENAI_API_KEY",
        403: "this key may not use this model",
        429: "the rate limit or quota is used up: wait, or raise it with the provider",
    }
    hint = {**common, **hints}.get(error.status_code, "the endpoint is in trouble: try again later")
    said = " ".join(str(error.message).split())[:WORDS]
    return f"answered {error.status_code} ({said}): {hint}"
