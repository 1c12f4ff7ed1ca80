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
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from clew.errors import ConfigError, SourceError, counted
from clew.protocols import Context, Source, Store
from clew.sources import ExternalPassage
from clew.trust import hide_password
from clew.types import Answer, Candidate, Hit, Query, Record

LARGEST_ANSWER = 2 * 1024 * 1024
"""Bytes; fifty results are some ten thousand."""
LONGEST_TEXT = 4_000
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


def web(root: Path, *, address: str, seconds: float = 5.0) -> Source:
    """The SearXNG instance at this address."""
    return WebSource(SearXNG(address, seconds=seconds))


@dataclass(frozen=True)
class WebSource(Source):
    """Pages as a web search ranks them: its own scores are on no scale that is known."""

    search: WebSearch

    def __call__(self, query: Query, context: Context) -> Answer:
        found, problem = self.search.search(query.text, query.depth)
        return Answer([_candidate(rank, page) for rank, page in enumerate(found, 1)], problem or "")

    def freshness(self, store: Store) -> str:
        """Nobody can tell: answers are kept for as long as the settings say."""
        return ""


pages = WebSource
"""Any web search as a source."""


def _candidate(rank: int, page: Page) -> Candidate:
    hit = Hit(
        id=f"web:{canonical_address(page.address) or page.address}",
        content=page.text or page.title,
        score=1 / rank,
        title=page.title,
        path=page.address,
        metadata={"url": page.address, "type": "web"},
    )
    record = Record(hit.id, hit.content, hit.title, page.address, "web", "web")
    passage = ExternalPassage(0, record, hit.content, (1, 1), hit=hit)
    return Candidate(hit.id, hit.score, None, passage)


class SearXNG:
    """An instance, by its address."""

    def __init__(self, address: str, *, seconds: float = 5.0):
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"web = {hide_password(address)!r:.100}: expected an address such as https://host/"
            )
        login, _, place = parts.netloc.rpartition("@")
        self._address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._host, self._seconds = parts.hostname, seconds
        self._headers = {"Accept": "application/json"}
        if login:  # urllib does not log in by it, and errors would show it
            said = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(said.encode()).decode()}"
        self._opener = urllib.request.build_opener(_SameHost(parts.scheme, place))

    def search(self, query: str, limit: int) -> tuple[Sequence[Page], str | None]:
        asked = urlencode({"q": query, "format": "json"})
        request = urllib.request.Request(f"{self._address}/search?{asked}", headers=self._headers)
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
        found = [_read_page(row) for row in rows]
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
                if len(data) > LARGEST_ANSWER:
                    raise SourceError(f"{self._host} gave more than {LARGEST_ANSWER >> 20} MB")
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


def _read_page(row: Any) -> Page | None:
    if not isinstance(row, dict):
        return None
    address, title, text = (row.get(name) or "" for name in ("url", "title", "content"))
    if not all(isinstance(value, str) for value in (address, title, text)):
        return None
    if canonical_address(address) is None or not (title.strip() or text.strip()):
        return None
    return Page(address, " ".join(title.split())[:500], text.strip()[:LONGEST_TEXT])


def canonical_address(address: str) -> str | None:
    """The address in one form: host in lower case, no fragment, no slash at the end. None: it is
    none of the web."""
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
