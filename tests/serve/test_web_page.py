"""The web page in a real browser, as somebody uses it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

import clew
from browser import open_browser
from clew.serve.http import create_app
from clew.serve.stores import ServedStores
from documents import pdf
from servers import running

from hashing import HashingEmbedder

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "src" / "clew" / "serve" / "web"
EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>window.ran = 1; alert(2)</script>"
LONG = "".join(f"line {n}{' has marmalade' * (n == 4321)}\n" for n in range(1, 5001))
PATIENCE = 60_000
"""Milliseconds: a machine that does other things as well may take its time."""
expect.set_options(timeout=PATIENCE)
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 700}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStores]:
    """The sample folder with a PDF, what a villain would write, a graph and a tree; a memory."""
    place = tmp_path_factory.mktemp("page")
    folder = place / "sample"
    shutil.copytree(REPOSITORY / "sample", folder, ignore=shutil.ignore_patterns(".clew"))
    (folder / "manual.pdf").write_bytes(pdf("Bilge pumps", "The impeller wants silicone grease"))
    (folder / f"{EVIL}.md").write_text(
        f'---\ntitle: "zebra {EVIL}"\ntags: ["<b>bold</b>"]\n---\n# zebra\n\n{SCRIPT} and {EVIL} '
        "and \u202eturned\n\nThe zebra crosses.\n",
        "utf-8",
    )
    (folder / "long.txt").write_text(LONG)
    with clew.open(folder, embedder=HashingEmbedder()) as engine:
        engine.index()
        engine.graph.build(llm=False)
        engine.tree.build(llm=False)
    with ServedStores() as stores:
        stores.open_folder(folder, embedder=HashingEmbedder())
        stores.open_memory(place / "memory.db", embedder=HashingEmbedder(), embedding_dim=64)
        yield stores


@contextmanager
def serving(stores: ServedStores, **options: Any) -> Iterator[str]:
    """A server in a thread; its address."""
    app = create_app(stores, page=PAGE, **options)
    with running(app, timeout_graceful_shutdown=1) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture(scope="module")
def address(stores: ServedStores) -> Iterator[str]:
    with serving(stores) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A window that fails the test for an error, a dialog, or a request to anybody else."""
    yield from open_page(browser, address, viewport=WIDE)


@pytest.fixture
def phone(browser: Browser, address: str) -> Iterator[Page]:
    yield from open_page(browser, address, viewport=PHONE, has_touch=True, is_mobile=True)


def open_page(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(PATIENCE)
    # One connection that never ends for each page would keep the server from ending.
    context.route("**/index/progress*", lambda route: route.fulfill(**stream("idle")))
    opened, problems, asked = context.new_page(), [], []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    opened.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    ran = opened.evaluate("window.ran")
    context.close()
    assert not problems
    assert ran is None
    assert {url for url in asked if not url.startswith(address)} == set()


def stream(state: str, **said: Any) -> dict[str, Any]:
    data = json.dumps({"state": state, **said})
    return {"body": f"event: job\ndata: {data}\n\n", "content_type": "text/event-stream"}


def search(page: Page, words: str) -> None:
    """Type as people do, and wait for the list of these words."""
    with page.expect_response(lambda answer: asked_for(answer.url) == words):
        page.get_by_role("searchbox", name="Search your files").fill(words)
    expect(page.locator("#summary")).to_contain_text("result")


def asked_for(url: str) -> str | None:
    parts = urlsplit(url)
    return parse_qs(parts.query).get("q", [None])[0] if parts.path == "/search" else None


def test_results_come_while_one_types(page: Page) -> None:
    page.goto("./")
    page.get_by_role("searchbox").press_sequentially("sauna heater", delay=30)
    first = page.locator("#results li").first
    expect(first).to_contain_text("The sauna heater trips the breaker")
    expect(first.locator("mark").first).to_have_text(re.compile("sauna|heater", re.IGNORECASE))
    expect(page).to_have_url(re.compile(r"\?q=sauna\+heater"))
    expect(page).to_have_title(re.compile("^sauna heater"))


def test_a_key_pressed_soon_after_another_costs_no_search(page: Page) -> None:
    page.goto("./")
    asked: list[str | None] = []
    page.on("request", lambda request: asked.append(asked_for(request.url)))
    page.get_by_role("searchbox").press_sequentially("telemetry", delay=5)
    expect(page.locator("#results li").first).to_contain_text("Limpet")
    words = [each for each in asked if each]
    assert words[-1] == "telemetry"
    assert len(words) < 5


def test_the_keyboard_is_enough(page: Page) -> None:
    page.goto("./")
    search(page, "epoxy cure")
    field = page.get_by_role("searchbox")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#results a").nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#results a").nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name=re.compile("Text of"))).to_contain_text("epoxy")
    page.keyboard.press("Escape")
    expect(page.locator(".document")).to_have_count(0)
    expect(page.locator("#results a").nth(0)).to_be_focused()
    page.keyboard.press("Escape")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(field).to_have_value("")
    page.locator("#theme").focus()
    page.keyboard.press("/")
    expect(field).to_be_focused()


def test_enter_opens_the_best_hit(page: Page) -> None:
    page.goto("./")
    search(page, "sauna heater")
    page.keyboard.press("Enter")
    expect(page.locator(".document h2")).to_have_text("The sauna heater trips the breaker")


def test_a_file_is_open_at_its_line(page: Page) -> None:
    page.goto("./")
    search(page, "marmalade path:long.txt")
    page.locator("#results a").first.click()
    target = page.locator(".row.target")
    expect(target).to_be_in_viewport()
    expect(target.locator(".text")).to_have_text("line 4321 has marmalade")
    assert page.locator(".row").count() < 1500  # not all of the file
    page.get_by_role("button", name="Show what stands before").click()
    expect(page.locator(".row[data-line='3600']")).to_have_count(1)


def test_a_pdf_is_open_at_its_page(page: Page) -> None:
    page.goto("./")
    search(page, "silicone grease impeller")
    hit = page.locator("#results li").first
    expect(hit.locator(".place")).to_have_text("manual.pdf, page 2")
    hit.locator("a").click()
    expect(page.locator(".row.target .text")).to_contain_text("silicone grease")
    expect(page.locator(".row.target .count")).to_have_attribute("data-count", "page 2")


def test_a_chip_narrows_the_list_and_the_address(page: Page) -> None:
    page.goto("./")
    search(page, "limpet")
    chip = page.get_by_role("group", name="Filters").get_by_role("button", name="code")
    chip.click()
    expect(page).to_have_url(re.compile("type=code"))
    places = page.locator("#results .place")
    expect(places.filter(has_not_text="limpet_telemetry.py")).to_have_count(0)
    expect(places).not_to_have_count(0)
    on = page.get_by_role("button", name="code", pressed=True)
    expect(on).to_be_focused()
    page.go_back()
    expect(places.filter(has_not_text="limpet_telemetry.py")).not_to_have_count(0)
    page.go_forward()
    on.click()
    expect(page).not_to_have_url(re.compile("type="))
    page.locator("#results .tag", has_text="#robotics").first.click()
    expect(page.get_by_role("button", name="#robotics", pressed=True)).to_be_visible()


def test_the_explanation_adds_up(page: Page) -> None:
    page.goto("./")
    search(page, "epoxy cure time")
    page.locator("#results a").first.click()
    page.get_by_role("button", name="Why it is here").click()
    here = page.locator(".block", has_text="This hit")
    adds = [float(text) for text in here.locator("tbody td:last-child").all_inner_texts()]
    total = float(here.locator("tfoot td:last-child").inner_text())
    assert len(adds) > 1
    assert sum(adds) == pytest.approx(total, abs=0.0005)
    assert here.locator("svg rect").count() == len(adds)
    stages = page.locator(".time tbody th").all_inner_texts()
    assert stages[0] == "parse"
    assert {"collect", "keyword", "fuse", "snippet"} <= set(stages)
    assert stages.index("collect") < stages.index("keyword") < stages.index("fuse")


def test_a_link_shows_what_its_sender_saw(page: Page, browser: Browser, address: str) -> None:
    page.goto("./")
    search(page, "keel bolts torque")
    page.locator("#results a").nth(1).click()
    title = page.locator(".document h2").inner_text()
    url, listed = page.url, page.locator("#results .place").all_inner_texts()
    for other in open_page(browser, address, viewport=WIDE):
        other.goto(url)
        expect(other.locator(".document h2")).to_have_text(title)
        assert other.locator("#results .place").all_inner_texts() == listed
        expect(other.locator("#results .open")).to_have_count(1)


def test_back_leads_through_what_was_opened(page: Page) -> None:
    page.goto("./")
    search(page, "keel bolts")
    page.locator("#results a").nth(0).click()
    expect(page.locator(".document h2")).to_be_visible()
    page.get_by_role("link", name="Graph").click()
    expect(page.locator(".picture svg")).to_be_visible()
    page.go_back()
    expect(page.locator(".document h2")).to_be_visible()
    page.go_back()
    expect(page.locator(".document")).to_have_count(0)
    expect(page.get_by_role("searchbox", name="Search your files")).to_have_value("keel bolts")


@pytest.mark.parametrize("words", ["zebra", EVIL, f"zebra {SCRIPT}"])
def test_what_villains_write_is_text(page: Page, words: str) -> None:
    page.goto("./")
    search(page, words)
    hit = page.locator("#results li", has_text="zebra <img").first
    expect(hit.locator(".title")).to_have_text(f"zebra {EVIL}")
    expect(hit.locator(".place")).to_contain_text(f"{EVIL}.md")
    hit.locator("a").click()
    text = page.get_by_role("region", name=re.compile("Text of"))
    expect(text).to_contain_text(SCRIPT)
    expect(text).to_contain_text("\ufffdturned")
    page.get_by_role("button", name="Why it is here").click()
    expect(page.locator(".subject")).to_have_text(f"zebra {EVIL}")
    assert page.locator("main img, main script, main b").count() == 0


def test_what_villains_write_is_text_in_graph_tree_and_memories(page: Page) -> None:
    page.goto("?view=graph")
    page.get_by_role("searchbox", name="Go to a name").fill(f"zebra {EVIL}")
    page.keyboard.press("Enter")
    expect(page.locator(".side h1")).to_contain_text("<img")
    expect(page.locator(".side li", has_text="zebra <img").first).to_be_visible()
    page.goto("?view=tree")
    expect(page.locator(".side h1")).to_be_visible()
    page.goto("?view=memories")
    page.get_by_label("Something to remember").fill(f"quagga {SCRIPT}{EVIL}")
    page.get_by_role("button", name="Remember").click()
    expect(page.locator(".memory .content").first).to_have_text(f"quagga {SCRIPT}{EVIL}")
    assert page.locator("main img, main script").count() == 0


def test_a_memory_is_kept_corrected_forgotten_and_brought_back(page: Page) -> None:
    page.goto("?view=memories")
    page.get_by_label("Something to remember").fill("Ana is allergic to walnuts")
    page.get_by_label("Tags, with commas between them").fill("health, ana")
    page.get_by_role("button", name="Remember").click()
    row = page.locator(".memory", has_text="walnuts")
    expect(row).to_contain_text("#health")
    row.get_by_role("button", name="History").click()
    page.get_by_label("What is true instead").fill("Ana is allergic to hazelnuts")
    page.get_by_role("button", name="Correct").click()
    past = page.get_by_role("list", name=re.compile("History")).get_by_role("listitem")
    expect(past).to_have_count(2)
    expect(past.nth(0)).to_contain_text("hazelnuts")
    expect(past.nth(1)).to_contain_text("superseded")
    page.get_by_role("searchbox", name=re.compile("Recall")).fill("allergic")
    row = page.locator(".memory", has_text="hazelnuts")
    expect(page.locator("#view [role=status]")).to_contain_text("for these words")
    row.get_by_role("button", name="Forget").click()
    expect(page.locator("#toast")).to_contain_text("Forgotten")
    expect(row).to_have_class(re.compile("gone"))
    page.reload()
    expect(page.locator(".memories li")).not_to_have_count(0)
    expect(row).to_have_count(0)


def test_forgetting_can_be_undone(page: Page) -> None:
    page.goto("?view=memories")
    page.get_by_label("Something to remember").fill("The spare key hangs in the boat shed")
    page.keyboard.press("Control+Enter")
    row = page.locator(".memory", has_text="spare key")
    row.get_by_role("button", name="Forget").click()
    expect(page.locator("#toast")).to_contain_text("Forgotten")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    expect(page.locator("#toast")).to_contain_text("It is back")
    page.reload()
    expect(page.locator(".memory", has_text="spare key")).to_have_count(1)


def test_memories_of_every_namespace_are_found_and_forgotten(
    page: Page, stores: ServedStores
) -> None:
    memory = stores.memory()
    memory.remember("The quartermaster keeps bees", id="profile", namespace="ana")
    memory.remember("The quartermaster keeps goats", id="profile")
    page.goto("?view=memories&q=quartermaster")
    rows = page.locator(".memory", has_text="quartermaster")
    expect(rows).to_have_count(2)
    bees = page.locator(".memory", has_text="bees")
    expect(bees).to_contain_text("ana")
    bees.get_by_role("button", name="Forget").click()
    expect(bees).to_have_class(re.compile("gone"))
    kept = memory.get("profile", namespace="default")
    assert kept is not None and kept.ended_at is None and kept.accesses == 0
    bees.get_by_role("button", name="Bring back").click()
    expect(rows).to_have_count(2)
    expect(page.locator(".memory.gone")).to_have_count(0)


def test_the_graph_can_be_walked(page: Page) -> None:
    page.goto("?view=graph")
    expect(page.locator(".picture svg .node").nth(10)).to_be_visible()
    page.locator(".side li a").first.click()
    expect(page.locator(".trail li")).to_have_count(2)
    name = page.locator(".side h1").inner_text()
    expect(page.locator(".trail [aria-current]")).to_have_text(name)
    nearest = page.locator(".picture svg a.node").first
    said = str(nearest.get_attribute("aria-label"))
    nearest.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".trail li")).to_have_count(3)
    there = page.locator(".side h1").inner_text()
    assert said.startswith(there)
    page.locator(".trail a", has_text=name).click()
    expect(page.locator(".side h1")).to_have_text(name)
    page.locator(".side ul").first.get_by_role("link").first.click()
    expect(page.locator(".document h2")).to_be_visible()


def test_the_tree_can_be_walked_down_to_a_record(page: Page) -> None:
    page.goto("?view=tree")
    expect(page.locator(".side h1")).to_have_text("everything")
    for _ in range(9):
        if page.locator(".picture svg a.node:not(.leaf)").count() == 0:
            break
        label = str(page.locator("svg a.node:not(.leaf)").first.get_attribute("aria-label"))
        page.locator("svg a.node:not(.leaf)").first.click()
        expect(page.locator(".side h1")).to_have_text(label.rpartition(", ")[0])
    leaf = page.locator("svg a.leaf").first
    title = str(leaf.get_attribute("aria-label")).removesuffix(", record")
    leaf.click()
    expect(page.locator(".document h2")).to_have_text(title)


def test_an_answer_has_its_sources(page: Page) -> None:
    page.goto("./")
    search(page, "keel bolts torque kestrel")
    page.get_by_role("button", name="Ask").click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer.locator(".said")).to_contain_text("Quoted")
    place = answer.locator(".sources a").first.inner_text()
    answer.locator(".cite").first.click()
    expect(page.locator(".document .place")).to_have_text(place.split(",")[0])


def test_an_answer_keeps_to_the_chips(page: Page) -> None:
    page.goto("?q=keel+bolts+torque+kestrel&path=recipes/")
    page.get_by_role("button", name="Ask").click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("Not in your files")


def test_colours_follow_the_system_and_can_be_chosen(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    page.goto("./")
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.get_by_role("button", name="Colours: as the system").click()
    assert page.evaluate(ground) == light
    page.reload()
    expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
    assert page.evaluate(ground) == light


@pytest.mark.parametrize(
    "path",
    ["?q=keel+bolts", "?q=keel+bolts&pane=why", "?view=graph", "?view=tree", "?view=memories"],
)
def test_a_phone_needs_no_scrolling_sideways(phone: Page, path: str) -> None:
    phone.goto(path)
    ready = phone.locator("#results li, .time, .picture svg, .remember").locator("visible=true")
    expect(ready).not_to_have_count(0)
    assert phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    wide = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.chips, .wide, svg'))"
    cut = "e.getBoundingClientRect().right > innerWidth + 1"
    assert phone.evaluate(f"{wide}.filter(e => {cut}).map(e => e.outerHTML)") == []


def test_a_choice_of_folders_fits_on_a_phone_as_well(phone: Page) -> None:
    folders = [{"name": name, "kind": "folder"} for name in ("notes-of-last-year", "docs")]
    phone.route("**/stores", lambda route: route.fulfill(json={"stores": folders}))
    phone.goto("?q=keel+bolts")
    expect(phone.get_by_label("Folder")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    expect(phone.get_by_role("link", name="Tree")).to_be_in_viewport(ratio=1)


def test_on_a_phone_a_file_takes_the_place_of_the_list(phone: Page) -> None:
    phone.goto("?q=keel+bolts")
    phone.locator("#results a").first.tap()
    expect(phone.locator(".document h2")).to_be_visible()
    expect(phone.locator("#results")).to_be_hidden()
    phone.get_by_role("button", name="Close").tap()
    expect(phone.locator("#results li").first).to_be_visible()


def test_a_screen_reader_finds_its_way(page: Page) -> None:
    page.goto("./")
    search(page, "keel bolts")
    for role in ("banner", "navigation", "main", "search", "complementary"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.locator("#summary")).to_have_attribute("aria-live", "polite")
    expect(page.locator("nav [aria-current=page]")).to_have_text("Search")
    assert page.evaluate("document.documentElement.lang") == "en"
    page.locator("#results a").first.click()
    for path in (page.url, "?view=graph", "?view=tree", "?view=memories"):
        page.goto(path)
        expect(page.locator(".document .row, #view > *").first).to_be_visible()
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, select, textarea, svg")]
              .filter((each) => each.getAttribute("aria-hidden") !== "true")
              .filter((each) => each.checkVisibility())
              .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim()
                || [...(each.labels ?? [])].some((label) => label.textContent.trim())))
              .map((each) => each.outerHTML)"""
        )
        assert unnamed == []
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
    page.goto("./")


def test_progress_is_shown_and_said(page: Page) -> None:
    job = stream("running", stage="embedding", done=3, total=4)
    page.route("**/index/progress*", lambda route: route.fulfill(**job))
    page.goto("./")
    expect(page.locator("#progress p")).to_have_text("embedding: 3 of 4")
    expect(page.locator("#progress p")).to_have_attribute("role", "status")


def test_the_policy_forbids_inline_scripts_and_others(page: Page) -> None:
    answer = page.goto("./")
    assert answer is not None
    policy = answer.header_value("content-security-policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy  # innerHTML is an error


def test_a_server_with_a_token_asks_for_it(browser: Browser, stores: ServedStores) -> None:
    with serving(stores, token="open sesame") as guarded:
        context = browser.new_context(base_url=guarded)
        page = context.new_page()
        page.goto("?q=sauna+heater")
        asks = page.get_by_role("dialog")
        for said in ("open barley", "open sesame"):
            asks.get_by_label("Token").fill(said)
            asks.get_by_role("button", name="Go on").click()
        expect(page.locator("#results li").first).to_contain_text("sauna")
        page.reload()
        expect(page.locator("#results li").first).to_contain_text("sauna")
        expect(asks).to_be_hidden()
        context.close()


def test_a_link_may_carry_the_token(browser: Browser, stores: ServedStores) -> None:
    with serving(stores, token="open sesame") as guarded:
        context = browser.new_context(base_url=guarded)
        page = context.new_page()
        page.goto("?q=sauna+heater#token=open%20sesame")
        expect(page.locator("#results li").first).to_contain_text("sauna")
        assert "sesame" not in page.url
        context.close()


def test_the_page_is_light() -> None:
    assert sum(file.stat().st_size for file in PAGE.rglob("*") if file.is_file()) < 200_000
