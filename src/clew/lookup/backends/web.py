"""Pages of the web, asked of a search engine that somebody runs. Off unless its address is set.

`WebSearch` is the seam; `SearXNG` speaks the JSON of an instance of that meta search engine. What
it says is of strangers' making: it is read up to a size, within a time, from the one host that was
configured, and only what looks like a result is one.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

from clew.errors import ConfigError, SourceError, counted
from clew.lookup.backends import Backend, FunctionBackend, Setup
from clew.lookup.result import Partial
from clew.types import Hit

__all__ = ["Page", "SearXNG", "WebSearch", "canonical_address", "pages", "web"]

LARGEST = 2 * 1024 * 1024
"""Bytes of an answer; fifty results are some ten thousand."""
LONGEST = 4_000
"""Characters of a result's text."""


@dataclass(frozen=True, slots=True)
class Page:
    """One result of a web search."""

    address: str
    title: str
    text: str


class WebSearch(Protocol):
    """What can be asked for pages."""

    def search(self, query: str, limit: int) -> tuple[Sequence[Page], str | None]:
        """The best pages, and what was wrong with the answer; a SourceError where there is none."""
        ...


class SearXNG:
    """An instance, by its address."""

    def __init__(self, address: str, *, seconds: float = 5.0):
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"web = {address!r:.100}: expected an address such as https://host/")
        self._address = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._host, self._seconds = parts.hostname, seconds
        self._opener = urllib.request.build_opener(_SameHost(parts.scheme, parts.netloc))

    def search(self, query: str, limit: int) -> tuple[Sequence[Page], str | None]:
        asked = urlencode({"q": query, "format": "json"})
        request = urllib.request.Request(
            f"{self._address}/search?{asked}", headers={"Accept": "application/json"}
        )
        try:
            told = json.loads(self._read(request))
        except SourceError:
            raise
        except urllib.error.HTTPError as error:
            raise SourceError(f"{self._host} answered {error.code}: {error.reason}") from error
        except OSError as error:  # no route, refused, timed out
            reason = getattr(error, "reason", None) or error
            raise SourceError(f"{self._host} cannot be asked: {reason}") from error
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self._host} gave no JSON: is its JSON format on?") from error
        except Exception as error:  # http.client has its own for broken answers
            raise SourceError(f"{self._host} gave no whole answer: {error!r:.200}") from error
        rows = told.get("results") if isinstance(told, dict) else None
        if not isinstance(rows, list):
            raise SourceError(f"{self._host} gave JSON without results")
        found = [_page(row) for row in rows]
        wrong = found.count(None)
        return [page for page in found if page][:limit], (
            f"{counted(wrong, 'result')} of {self._host} made no sense" if wrong else None
        )

    def _read(self, request: urllib.request.Request) -> bytes:
        """All of the answer; never more than it may have, nor for longer."""
        end = time.monotonic() + self._seconds
        data = bytearray()
        with self._opener.open(request, timeout=self._seconds) as answer:
            while piece := answer.read1(65_536):
                data += piece
                if len(data) > LARGEST:
                    raise SourceError(f"{self._host} gave more than {LARGEST >> 20} MB")
                if time.monotonic() > end:
                    raise SourceError(f"{self._host} was not done within {self._seconds:g} s")
        return bytes(data)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """What was asked of one host is not told to another."""

    def __init__(self, scheme: str, place: str):
        self._scheme, self._place = scheme, place

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        target = urlsplit(newurl)
        if (target.scheme, target.netloc) != (self._scheme, self._place):
            raise SourceError(
                f"it sends us on to {target.scheme}://{target.hostname}: set `web` to the address "
                "that is meant"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _page(row: Any) -> Page | None:
    if not isinstance(row, dict):
        return None
    address, title, text = (row.get(name) or "" for name in ("url", "title", "content"))
    if not all(isinstance(value, str) for value in (address, title, text)):
        return None
    if _one_form(address) is None or not (title.strip() or text.strip()):
        return None
    return Page(address, " ".join(title.split())[:500], text.strip()[:LONGEST])


def _one_form(address: str) -> str | None:
    """The address in one form: host in lower case, no fragment, no slash at the end."""
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").lower()
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    usual = {"http": 80, "https": 443}[parts.scheme]
    place = host if port in (None, usual) else f"{host}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), parts.query, ""))


def canonical_address(address: str) -> str:
    """The same for what may be no address: as it is."""
    return _one_form(address) or address


def pages(search: WebSearch) -> Backend:
    """Any web search as a backend."""

    def backend(query: str, limit: int) -> Partial:
        found, problem = search.search(query, limit)
        return Partial(list(_hits(found)), problem)

    return FunctionBackend(backend)


def _hits(found: Iterable[Page]) -> Iterable[Hit]:
    for rank, page in enumerate(found, 1):
        address = canonical_address(page.address)
        yield Hit(
            id=f"web:{address}",
            content=page.text or page.title,
            score=1 / rank,  # its own are on no scale that is known
            title=page.title,
            path=page.address,
            metadata={"url": page.address, "type": "web"},
        )


def web(setup: Setup) -> Backend | None:
    """The SearXNG instance at `web`."""
    settings = setup.settings
    return pages(SearXNG(settings.web, seconds=settings.deadline)) if settings.web else None
