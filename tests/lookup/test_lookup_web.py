"""The web, asked of a real server of our own, well behaved and not."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from handles import look_up
from searxng import Server, body, flood, results

import clew
from clew import Search
from clew.sources.web import Page, SearXNG, pages
from servers import answering, drip, hang

QUERY = "keel torque"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(Server()) as server:
        yield server


def test_the_web_is_not_asked_unless_it_is_configured(storage: clew.Engine) -> None:
    with Search(storage) as search:
        assert "web" not in look_up(search, QUERY).by_backend
    with pytest.raises(clew.ConfigError, match="SearXNG"), Search(backends=["web"]) as search:
        look_up(search, QUERY)


def test_pages_are_found_beside_the_storage(server: Server, storage: clew.Engine) -> None:
    with Search(storage, web=server.url) as search:
        found = look_up(search, QUERY)
    assert [hit.path for hit in found.by_backend["web"]] == [
        "https://example.org/torque",
        "https://en.wikipedia.org/wiki/Keel",
    ]
    assert "keel" in {hit.id for hit in found} and not found.degraded
    (wiki,) = [hit for hit in found if "wikipedia" in (hit.path or "")]
    assert wiki.signals["credibility"]["score"] == 0.9 and wiki.title == "Keel"
    assert server.asked == ["keel torque"]


def test_a_login_in_the_address_is_sent_and_not_shown(server: Server) -> None:
    told, usual = list[str](), server.reply

    def reply(handler: Any) -> None:
        told.append(handler.headers["Authorization"])
        usual(handler)

    server.reply = reply
    with Search(web=server.url.replace("//", "//me:hunter%202@")) as search:
        assert look_up(search, QUERY).by_backend["web"]
    assert b64decode(told[0].removeprefix("Basic ")) == b"me:hunter 2"
    for nowhere in ("http://me:hunter2@127.0.0.1:1", "http://me:hunter2@127.0.0.1"):
        with Search(web=nowhere, cache=False) as search:
            (problem,) = look_up(search, QUERY).degraded
        assert "127.0.0.1" in problem and "hunter2" not in problem


def test_a_second_lookup_asks_nobody(server: Server) -> None:
    with Search(web=f"{server.url}/") as search:
        first, second = look_up(search, QUERY), look_up(search, "  KEEL torque")
        assert server.asked == ["keel torque"]
        assert second.results == first.results and second.by_backend == first.by_backend
        assert (first.trace["cache"]["slot"], second.trace["cache"]["slot"]) == (None, "primary")
        look_up(search, "keel & torque?q=x")
        assert server.asked[1] == "keel & torque?q=x"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (body(b"no", 500), "answered 500"),
        (body(b"no", 429), "answered 429"),
        (body(b"<html>"), "no JSON"),
        (body(b""), "no JSON"),
        (body(b"\xff\xfe{"), "no JSON"),
        (body(b"[" * 100_000), "no JSON"),
        (body(b"[]"), "without results"),
        (body(b'{"results": 5}'), "without results"),
        (hang, "no answer within|cannot be asked|not done within"),
        (drip, "no answer within|not done within"),
        (flood, "more than 2 MB"),
        (body(b"", 302, Location="http://169.254.169.254/latest"), "sends us on"),
        (body(b"", 301, Location="https://127.0.0.1/"), "sends us on"),
        (body(b"", 302, Location="file:///etc/passwd"), "sends us on|answered 302|not allowed"),
        (lambda handler: setattr(handler, "close_connection", True), "cannot be asked|no whole"),
    ],
)
def test_whatever_the_server_does_the_others_answer(
    server: Server, storage: clew.Engine, reply: object, said: str
) -> None:
    import re

    server.reply = reply  # type: ignore[assignment]
    with Search(storage, web=server.url, deadline=3.0) as search:
        found = look_up(search, QUERY)
    assert found[0].id == "keel" and found.by_backend["web"] == ()
    (problem,) = found.degraded
    assert problem.startswith("web: ") and re.search(said, problem), problem
    assert found.trace["backends"]["web"]["problem"] in problem


def test_an_answer_with_something_missing_is_not_kept(server: Server) -> None:
    with Search(web=server.url) as search:
        proper, server.reply = server.reply, body(b"no", 500)
        assert len(look_up(search, QUERY)) == 0
        server.reply = proper
        assert len(look_up(search, QUERY)) == 2


def test_a_redirect_on_the_same_host_is_followed(server: Server) -> None:
    proper = server.reply

    def once(handler: object) -> None:
        server.reply = proper
        target = f"{server.url}/search?q=keel+torque&format=json"
        handler.send(302, b"", Location=target)  # type: ignore[attr-defined]

    server.reply = once
    with Search(web=server.url) as search:
        assert len(look_up(search, QUERY)) == 2


def test_results_that_make_no_sense_are_counted_and_none_is_made_up(server: Server) -> None:
    server.reply = results(
        {"url": "https://example.org/a", "title": "Keel", "content": "torque"},
        {"url": "https://EXAMPLE.org:443/a/#part", "title": "Keel", "content": "torque again"},
        {"url": "javascript:alert(1)", "title": "x", "content": "y"},
        {"url": "file:///etc/passwd", "title": "x", "content": "y"},
        {"url": "https://example.org/empty"},
        {"url": "https://[bad", "title": "x"},
        {"title": "no address"},
        {"url": 5, "title": "x"},
        "garbage",
        None,
    )
    with Search(web=server.url) as search:
        found = look_up(search, QUERY)
    assert [hit.id for hit in found] == ["web:https://example.org/a"]
    assert "8 results" in found.degraded[0]


def test_text_of_any_length_and_kind_is_cut_and_kept_as_text(server: Server) -> None:
    long = "keel " * 100_000
    server.reply = body(
        json.dumps(
            {"results": [{"url": "https://example.org/", "title": "\ud800 a\nb", "content": long}]}
        ).encode()
    )
    with Search(web=server.url) as search:
        (hit,) = look_up(search, QUERY)
        assert len(hit.content) <= 4_000 and "\n" not in hit.title
        assert look_up(search, QUERY)[0] == hit


@pytest.mark.parametrize("address", ["searx.example.org", "ftp://host/", "http://", "file:///x"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with (
        pytest.raises(clew.ConfigError, match="expected an address"),
        Search(web=address) as search,
    ):
        look_up(search, QUERY)


def test_another_web_search_takes_its_place() -> None:
    class Mine:
        def search(self, query: str, limit: int) -> tuple[Sequence[Page], str | None]:
            return [Page("https://arxiv.org/abs/1", f"About {query}", "Keels in theory")], None

    with Search(backends={"web": pages(Mine())}) as search:
        (hit,) = look_up(search, "keel")
        assert hit.title == "About keel" and hit.signals["credibility"]["score"] == 0.85


def test_it_asks_for_no_more_than_it_is_told(server: Server) -> None:
    server.reply = results(
        *[{"url": f"https://e.org/{i}", "title": "t", "content": "c"} for i in range(30)]
    )
    found, problem = SearXNG(server.url).search("q", 7)
    assert len(found) == 7 and problem is None
