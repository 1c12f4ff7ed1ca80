"""Answers over HTTP are those of the engine, in the form of --json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

import clew
from clew.serve.stores import ServedStores
from servers import Server


def test_search_answers_as_the_engine_does(web: TestClient, stores: ServedStores) -> None:
    got = web.get("/search", params={"q": "electric fuse", "limit": 2, "cache": False}).json()
    own = stores.folder().engine.search("electric fuse", limit=2, cache=False).to_dict()
    for answer in (got, own):
        answer.pop("trace")
    assert got == own
    assert got["results"][0]["path"] == "boat/fuses.md"


def test_a_kept_answer_is_the_same_and_never_an_old_one(
    web: TestClient, stores: ServedStores, notes: Path
) -> None:
    def ask(**more: object) -> dict[str, Any]:
        asked = {"q": "electric fuse", "limit": 2, **more}
        answer: dict[str, Any] = web.get("/search", params=asked).json()
        return answer

    anew, _, kept = ask(cache=False), ask(), ask()
    again, page = ask(), ask(offset=1)
    assert (anew["cache"], kept["cache"]) == (None, "exact")
    assert {**kept, "trace": None, "cache": None} == {**anew, "trace": None}
    assert {**again, "trace": None} == {**kept, "trace": None}
    assert again["trace"].keys() == kept["trace"].keys() == {*anew["trace"], "cache"}
    assert page["results"] == ask(limit=3)["results"][1:]
    engine = stores.folder().engine
    engine.add([clew.Record("new", "An electric fuse, an electric fuse.")])
    assert "new" in [hit["id"] for hit in ask()["results"]]
    assert ask() and ask()["cache"] == "exact"
    engine.remove("new")
    assert ask()["results"] == anew["results"]
    (notes / "boat" / "fuses.md").write_text("# Fuses\n\nNo electric fuse here.\n", "utf-8")
    assert ask()["results"][0]["metadata"]["stale"]
    (notes / "clew.toml").write_text("[sources.keyword]\nweight = 0.5\n", "utf-8")
    assert ask()["trace"]["sources"]["keyword"]["weight"] == 0.5


def test_no_page_goes_beyond_a_thousand_results(web: TestClient, stores: ServedStores) -> None:
    stores.folder().engine.add([clew.Record(f"r{i}", "many oars") for i in range(1100)])
    pages = [
        web.get("/search", params={"q": "oars", "limit": 600, "offset": offset}).json()["results"]
        for offset in (0, 600, 1000)
    ]
    assert list(map(len, pages)) == [600, 400, 0]


def test_weights_that_make_no_sense_are_the_callers_mistake(web: TestClient) -> None:
    for weights, status in (({"keyword": -1}, 400), ({"nothing": 1}, 400), ({"keyword": "x"}, 422)):
        answer = web.post("/search", json={"q": "keel", "weights": weights})
        assert (answer.status_code, answer.json()["kind"]) == (status, "InputError")


def test_what_one_may_see_is_not_given_to_another_from_what_is_kept(
    web: TestClient, stores: ServedStores
) -> None:
    stores.folder().engine.add([clew.Record("own", "electric fuse of mine", domain="personal")])
    for _ in range(3):
        shown = [
            [hit["id"] for hit in web.get(f"/search?q=electric+fuse{more}").json()["results"]]
            for more in ("", "&include_personal=true")
        ]
        assert ["own" in each for each in shown] == [False, True]


def test_filters_are_those_of_the_command(web: TestClient) -> None:
    got = web.get("/search", params={"tag": ["safety", "other"]}).json()
    assert [hit["path"] for hit in got["results"]] == ["boat/keel.md"]
    nothing = web.get("/search", params={"q": "keel", "tag": "saefty"}).json()
    assert nothing["message"] == "nothing found"
    assert "saefty" in nothing["notes"][0]["text"]


def test_pages_follow_each_other(web: TestClient) -> None:
    first = web.get("/search", params={"type": ["markdown", "text"], "limit": 2})
    assert len(first.json()["results"]) == 2
    second = web.get(first.links["next"]["url"])
    ids = [hit["id"] for page in (first, second) for hit in page.json()["results"]]
    assert len(ids) == len(set(ids)) == 3
    assert "next" not in second.links


def test_pages_of_memories_follow_each_other(web: TestClient) -> None:
    for number in range(5):
        web.post("/memories", json={"content": f"Ana has {number} boats", "namespace": "pages"})
    seen: list[str] = []
    address = "/memories?namespace=pages&limit=2"
    for _ in range(3):
        page = web.get(address)
        seen += [each["content"] for each in page.json()["memories"]]
        address = page.links["next"]["url"] if "next" in page.links else ""
    assert sorted(seen) == [f"Ana has {number} boats" for number in range(5)] and not address


def test_what_a_terminal_would_obey_is_escaped(web: TestClient) -> None:
    web.post("/memories", json={"content": "Ana\u009b31m is \u202e red", "namespace": "odd"})
    page = web.get("/memories", params={"namespace": "odd"})
    assert page.text.isprintable()
    assert page.json()["memories"][0]["content"] == "Ana\u009b31m is \u202e red"


def test_explain_has_the_list_of_every_source(web: TestClient) -> None:
    assert web.get("/explain", params={"q": "keel bolts"}).json()["trace"]["lists"]["keyword"]


@pytest.mark.parametrize("id", ["notes:boat/keel.md", "boat/keel.md"])
def test_a_record_comes_whole_with_its_passages(web: TestClient, id: str) -> None:
    record = web.get(f"/records/{id}").json()
    assert record["title"] == "Keel" and record["tags"] == ["safety"]
    (passage,) = record["passages"]
    assert "80 Nm" in record["content"][passage["start"] : passage["end"]]


def test_lines_of_a_record_may_be_cited(web: TestClient) -> None:
    assert web.get("/records/boat/keel.md%23L4").json()["content"] == "# Keel"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/records/nothing.md", 404),
        ("/records/../../etc/passwd", 404),
        ("/records/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("/search", 400),
        ("/search?q=a&store=elsewhere", 404),
        ("/search?q=a&after=yesterdayish", 400),
        ("/search?q=a&limit=0", 422),
        ("/search?q=a&limt=3", 422),
        ("/search?q=" + "a" * 10_001, 422),
        ("/nothing", 404),
    ],
)
def test_what_makes_no_sense_is_said(web: TestClient, path: str, status: int) -> None:
    answer = web.get(path)
    assert answer.status_code == status
    if path != "/nothing" and ".." not in path:
        assert answer.json()["error"]


def test_stores_and_their_status(web: TestClient) -> None:
    stores = web.get("/stores").json()["stores"]
    assert [(each["name"], each["kind"]) for each in stores] == [
        ("notes", "folder"),
        ("memory", "memory"),
    ]
    assert web.get("/status").json()["records"] == 3
    assert web.get("/status", params={"store": "memory"}).json()["memories"] == 0


def test_an_id_may_have_a_line_break(web: TestClient, stores: ServedStores) -> None:
    engine = stores.folder().engine
    engine.add([clew.Record("odd\nname\n", "The odd keel.")])
    assert web.get("/records/odd%0Aname%0A").json()["content"] == "The odd keel."
    assert web.post("/memories", json={"content": "x", "id": "a\nb"}).status_code == 201
    assert web.get("/memories/a%0Ab").json()["memories"][0]["id"] == "a\nb"
    assert web.post("/memories/a%0Ab/feedback", json={"useful": True}).json()["useful"] == 1
    assert web.delete("/memories/a%0Ab").json()["forgotten"] == ["a\nb"]


def test_a_search_of_a_memory_finds_what_is_in_use(web: TestClient) -> None:
    made = web.post("/memories", json={"content": "The keel is red", "tags": ["boat"]}).json()["id"]

    def found(**asked: str) -> list[str]:
        answer = web.get("/search", params={"store": "memory", **asked})
        return [hit["id"] for hit in answer.json()["results"]]

    assert found(q="keel") == found(q="keel") == [made]
    assert web.delete(f"/memories/{made}").json()["forgotten"] == [made]
    assert found(q="keel") == found(q="keel") == found(tag="boat") == []
    ended = {"q": "keel", "store": "memory", "filter": {"active": False}}
    assert len(web.post("/search", json=ended).json()["results"]) == 1


def test_the_page_needs_nothing_from_elsewhere(web: TestClient) -> None:
    page = web.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert web.get("/openapi.json").json()["paths"]["/search"]


def test_a_server_answers_and_ends_when_told(
    serve: Callable[..., Server], notes: Path, ask: httpx.Client
) -> None:
    server = serve(notes)
    found = ask.get(f"{server.url}/search", params={"q": "walnut bread"}).json()
    assert found["results"][0]["path"] == "kitchen.txt"
    assert server.stop() == 0
    with clew.open(notes) as engine:
        assert engine.search("walnut")


def test_the_nearest_store_is_served_beside_a_memory(
    serve: Callable[..., Server],
    notes: Path,
    tmp_path: Path,
    ask: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder, kinds in ((notes / "boat", ["folder", "memory"]), (tmp_path, ["memory"])):
        monkeypatch.chdir(folder)
        server = serve("--db", tmp_path / "kept.db")
        known = ask.get(f"{server.url}/stores").json()["stores"]
        assert [each["kind"] for each in known] == kinds
        server.stop()


def test_the_life_of_a_memory(web: TestClient) -> None:
    made = web.post("/memories", json={"content": "Ana lives in Porto", "tags": ["home"]})
    assert made.status_code == 201 and made.json()["status"] == "created"
    first = made.json()["id"]
    found = web.get("/recall", params={"q": "where does Ana live", "floor": 0}).json()
    assert [each["id"] for each in found["results"]] == [first]
    assert web.patch(f"/memories/{first}", json={"importance": 0.9}).json()["status"] == "updated"
    then = web.post(f"/memories/{first}/supersede", json={"content": "Ana lives in Lisbon"})
    second = then.json()["id"]
    assert then.json()["superseded"] == first
    chain = web.get(f"/memories/{second}").json()["memories"]
    assert [each["content"] for each in chain] == ["Ana lives in Lisbon", "Ana lives in Porto"]
    assert chain[0]["tags"] == ["home"] and chain[0]["importance"] == 0.9
    helped = web.post(f"/memories/{second}/feedback", json={"useful": True}).json()
    assert helped["useful"] == 1
    assert web.delete(f"/memories/{second}").json() == {"forgotten": [second], "hard": False}
    assert web.get("/memories").json() == {"memories": [], "more": False}
    assert len(web.get("/memories", params={"ended": True}).json()["memories"]) == 2
    assert web.post(f"/memories/{second}/restore").json() == {"restored": 1}
    assert web.delete("/memories/nobody").status_code == 404


def test_namespaces_do_not_see_each_other(web: TestClient) -> None:
    web.post("/memories", json={"content": "a secret", "namespace": "ana", "id": "a/b"})
    assert web.get("/memories", params={"namespace": "bob"}).json()["memories"] == []
    assert web.get("/memories/a/b", params={"namespace": "bob"}).status_code == 404
    got = web.get("/memories/a/b", params={"namespace": "ana"}).json()["memories"]
    assert got[0]["content"] == "a secret"
    nothing = web.get("/recall", params={"q": "secret", "namespace": "bob"}).json()
    assert nothing["results"] == [] and "bob" in nothing["notes"][0]


def test_indexing_is_told_to_and_followed(web: TestClient, notes: Path) -> None:
    (notes / "new.md").write_text("A sextant measures angles.", "utf-8")
    assert web.post("/index", json={"embed": False}).status_code == 202
    while (job := web.get("/index").json())["state"] == "running":
        pass
    assert job["state"] == "done" and job["report"]["added"] == ["new.md"]
    assert web.get("/search", params={"q": "sextant"}).json()["results"]
    assert web.post("/index?store=memory", json={}).status_code == 400


def test_progress_of_a_real_run_is_streamed_until_it_is_done(
    serve: Callable[..., Server], notes: Path, ask: httpx.Client
) -> None:
    """A server in its own process indexes a real folder; the events tell of all of it."""
    server = serve(notes, "--no-watch")
    for number in range(300):
        text = f"# Log {number}\n\nThe sextant showed {number} degrees.\n"
        (notes / f"log{number}.md").write_text(text, "utf-8")
    jobs = []
    with ask.stream("GET", f"{server.url}/index/progress") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            assert not line or line.startswith(("event: job", "data: ", ":"))
            if not line.startswith("data: "):
                continue
            jobs.append(json.loads(line.removeprefix("data: ")))
            if len(jobs) == 1:  # whoever follows sees the run from its beginning
                started = ask.post(f"{server.url}/index", json={"embed": False})
                assert started.status_code == 202 and started.json()["state"] == "running"
            if jobs[-1]["state"] in ("done", "failed"):
                break
    assert jobs[0]["state"] == "idle" and jobs[-1]["state"] == "done", jobs[-1]
    assert all(job["state"] == "running" for job in jobs[1:-1])
    assert all(0 <= job["done"] <= job["total"] for job in jobs)
    assert len(jobs[-1]["report"]["added"]) == 300 and jobs[-1]["error"] is None
    assert "300 files added" in jobs[-1]["events"][-1]["text"]
    found = ask.get(f"{server.url}/search", params={"q": "sextant 217"}).json()
    assert found["results"][0]["path"] == "log217.md"
    assert server.stop() == 0


def test_an_answer_given_again_at_once_is_the_same_and_counted(
    web: TestClient, notes: Path
) -> None:
    first, *more = (web.get("/search", params={"q": "keel", "limit": 1}) for _ in range(3))
    for again in more:
        assert again.json()["results"] == first.json()["results"] and again.json()["cache"]
        assert again.headers["link"] == first.headers["link"]
        assert again.headers["x-frame-options"] == "DENY"
    counted = 'clew_requests_total{method="GET",route="/search",status="200"} 3'
    assert counted in web.get("/metrics").text
    (notes / "boat/keel.md").write_text("# Keel\n\nThe keel is new.\n", "utf-8")
    web.post("/index", json={"embed": False})
    while web.get("/index").json()["state"] == "running":
        time.sleep(0.02)
    found = web.get("/search", params={"q": "keel", "limit": 1}).json()
    assert "The keel is new." in found["results"][0]["content"]


def test_graph_and_tree_can_be_walked(web: TestClient, stores: ServedStores, notes: Path) -> None:
    assert web.get("/graph").status_code == 409
    assert "clew graph build" in web.get("/graph/picture").json()["error"]
    assert web.get("/tree").status_code == 409
    (notes / "people.md").write_text("[[Greta]] sails with [[Tomas Berg]].", "utf-8")
    (notes / "log.md").write_text("Greta repaired the keel. Tomas Berg paid.", "utf-8")
    engine = stores.folder().engine
    engine.index()
    engine.graph.build()
    picture = web.get("/graph/picture").json()
    ids = {node["id"] for node in picture["nodes"]}
    assert all({edge["from"], edge["to"]} <= ids for edge in picture["edges"])
    around = web.get("/graph/picture", params={"entity": "Tomas Berg"}).json()
    assert around["nodes"][0]["name"] == "Tomas Berg" and around["edges"]
    assert web.get("/graph", params={"entity": "Tomas Berg"}).json()["records"]


def test_figures_for_prometheus(web: TestClient) -> None:
    web.get("/search", params={"q": "keel"})
    web.get("/records/none")
    text = web.get("/metrics").text
    assert 'clew_requests_total{method="GET",route="/search",status="200"} 1' in text
    assert 'clew_requests_total{method="GET",route="/records/{id:whole}",status="404"} 1' in text
    assert 'clew_request_seconds_count{route="/search"} 1' in text
    assert 'clew_records{store="notes"} 3' in text


def test_an_answer_keeps_to_the_filters(web: TestClient) -> None:
    def sources(**filters: object) -> set[str]:
        said = {"question": "what torque do the keel bolts need", "quote": True, **filters}
        events = web.post("/ask", json=said).text.split("\n\n")
        done = json.loads(events[-2].partition("data: ")[2])
        return {each["path"] for each in done["citations"]}

    assert sources() == sources(tag=["safety"]) == {"boat/keel.md"}
    assert sources(path=["kitchen"]) <= {"kitchen.txt"} and sources(meta=["a=b"]) == set()
    refused = web.post("/ask", json={"question": "x", "store": "memory", "tag": ["safety"]})
    assert refused.status_code == 400 and "filters are of folders" in refused.json()["error"]
