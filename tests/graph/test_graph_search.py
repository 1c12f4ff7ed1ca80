"""Asking the graph: by the engine's search, by itself, and only for what may be seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yard import YARD, Opened, page

from clew import Engine, Filter
from clew.errors import InputError, SourceError, StoreError

CRANE, GRETA, ROASTER = "notes:crane.md", "notes:greta.md", "notes:roaster.md"


def ids(engine: Engine, question: str, **options: object) -> list[str]:
    return [record["id"] for record in engine.graph.query(question, **options).records]  # type: ignore[arg-type]


def test_a_page_is_found_by_way_of_the_one_that_is_named(yard: Engine) -> None:
    found = yard.graph.query("Harbour crane licence")
    assert found.named == ("Harbour crane",)
    assert [record["id"] for record in found.records][:2] == [CRANE, GRETA]
    assert "KR-5582" in found.records[1]["text"]


def test_a_search_ranks_the_linked_page_above_one_with_the_same_words(opened: Opened) -> None:
    engine = opened()
    engine.add(YARD)
    question = "Harbour crane: licence"
    before = [hit.id for hit in engine.search(question, limit=4)]
    assert before.index(ROASTER) < before.index(GRETA)
    engine.graph.build()
    result = engine.search(question, limit=4)
    after = [hit.id for hit in result]
    assert after.index(GRETA) < after.index(ROASTER)
    assert result[after.index(GRETA)].signals["graph"]["contrib"] > 0
    engine.graph.drop()
    assert [hit.id for hit in engine.search(question, limit=4)] == before


def test_without_a_graph_nobody_asks_for_it(opened: Opened) -> None:
    engine = opened()
    engine.add(YARD)
    assert "graph" not in engine.search("crane").trace["sources"]
    alone = engine.search("crane", sources=["graph"])
    assert not alone.hits and not any("graph" in said for said in alone.degraded)
    with pytest.raises(StoreError, match="clew graph build"):
        engine.graph.query("crane")


@pytest.mark.parametrize("name", ["Greta", "greta oltmanns", "the boatwright", "GRETA's"])
def test_every_alias_leads_to_the_page(yard: Engine, name: str) -> None:
    assert ids(yard, name)[0] == GRETA


@pytest.mark.parametrize("name", ["Bluebird", "Zed Bird", "harbour office", "Office of the port"])
def test_an_alias_leads_to_its_page_whichever_comes_first_by_letter(
    opened: Opened, name: str
) -> None:
    engine = opened()
    engine.add(
        [
            page(
                "boat", "First Boat", "It floats.", metadata={"aliases": ["Bluebird", "Zed Bird"]}
            ),
            page("harbour-office", "Office of the port", "It is open on Fridays."),
        ]
    )
    engine.graph.build()
    title = "First Boat" if "ird" in name else "Office of the port"
    assert engine.graph.query(name).named == (title,)


def test_a_filter_holds_before_the_cut(yard: Engine) -> None:
    only = Filter(ids=(GRETA, ROASTER))
    assert ids(yard, "Harbour crane licence", filter=only, limit=1) != [CRANE]
    found = yard.search("Harbour crane licence", sources=["graph"], filter={"ids": GRETA})
    assert {hit.id for hit in found} <= {GRETA}


def test_conditions_of_the_query_hold(yard: Engine) -> None:
    assert GRETA not in ids(yard, "Harbour crane licence -builder")
    assert ids(yard, 'Harbour crane "boat builder"') == [GRETA]


def test_what_is_removed_is_not_served_by_a_graph_that_is_behind(yard: Engine) -> None:
    yard.remove(GRETA)
    assert yard.graph.status()["behind"] == 1
    assert GRETA not in ids(yard, "Harbour crane licence")
    assert GRETA not in [hit.id for hit in yard.search("Harbour crane licence")]
    assert "KR-5582" not in json.dumps(yard.graph.query("licence", mode="global").to_dict())


def test_a_question_that_names_nothing_still_ranks_by_its_words(yard: Engine) -> None:
    found = yard.search("tonnes", sources=["graph"])
    assert found[0].id == CRANE
    assert found[0].score < 0.011  # next to nothing beside other sources


def test_global_search_gives_themes_with_their_records(yard: Engine) -> None:
    found = yard.graph.query("beans and gas", mode="global", limit=2)
    theme = found.themes[0]
    assert set(theme["records"]) >= {"notes:blend.md", ROASTER}
    assert theme["summary"] and theme["entities"]
    every = [record for theme in found.themes for record in theme["records"]]
    assert len(every) == len(set(every))


def test_a_theme_says_a_sentence_once_and_no_heading(opened: Opened) -> None:
    said = "The Kestrel Winch is repaired by the Yard of Kungshamn before it sails."
    text = said.replace("Yard", ":ref:`Yard`")
    engine = opened()
    for i in range(4):
        engine.add([page(f"p{i}", f"Release {i}", f"Kestrel Winch and Yard\n=====\n\n{text}\n")])
    engine.graph.build()
    (theme,) = engine.graph.query("Kestrel Winch", mode="global", limit=1).themes
    assert theme["summary"] == said and theme["size"] == 4


def test_a_source_may_answer_by_themes(opened: Opened) -> None:
    engine = opened(sources={"themes": {"kind": "graph", "mode": "global"}})
    engine.add(YARD)
    engine.graph.build()
    found = engine.search("beans and gas", sources=["themes"])
    assert {hit.id for hit in found} >= {"notes:blend.md", ROASTER}


def test_beside_others_the_graph_says_nothing_unless_a_record_is_named(yard: Engine) -> None:
    assert yard.search("tonnes").trace["sources"]["graph"]["count"] == 0
    assert yard.search("Greta").trace["sources"]["graph"]["count"] > 0


def test_a_record_named_in_passing_is_not_what_a_long_query_is_about(yard: Engine) -> None:
    short = "where does Greta keep oars"
    long = f"{short} and paint, tar, rope, brushes, sails, varnish and buckets over winter"
    assert yard.search(short).trace["sources"]["graph"]["count"] > 0
    assert yard.search(long).trace["sources"]["graph"]["count"] == 0


def test_a_source_that_need_not_be_sure_always_speaks(opened: Opened) -> None:
    engine = opened(sources={"graph": {"sure": False}})
    engine.add(YARD)
    engine.graph.build()
    assert engine.search("tonnes").trace["sources"]["graph"]["count"] > 0


def test_a_mode_that_is_none_is_said(yard: Engine) -> None:
    with pytest.raises(InputError, match="did you mean 'local'"):
        yard.graph.query("crane", mode="lokal")
    with pytest.raises(InputError, match="level 9"):
        yard.graph.query("crane", mode="global", level=9)
    with pytest.raises(InputError, match="empty"):
        yard.graph.query("  ")


# ---------------------------------------------------------------------- what may not be seen

SECRET = page(
    "diary",
    "My diary",
    "Operation Night Heron (ONH) worries me. [[greta|The Keeper]] met Doctor Feldspar about it, "
    "and [the roaster](roaster.md) was mentioned as well.",
    links=("greta", "roaster.md"),
    domain="personal",
)
OPEN = page("plan", "Plan of the year", "ONH begins in May, says the plan, and ONH ends in June.")


@pytest.fixture
def guarded(opened: Opened) -> Engine:
    engine = opened()
    engine.add([*YARD, SECRET, OPEN])
    engine.graph.build()
    return engine


def test_what_is_personal_is_nowhere_unless_asked_for(guarded: Engine, tmp_path: Path) -> None:
    graph = guarded.graph
    picture = tmp_path / "graph.html"
    graph.picture(picture)
    shown = [
        *(json.dumps(graph.query(q, mode="local").to_dict()) for q in ("Greta", "ONH", "My diary")),
        *(json.dumps(graph.query(q, mode="global").to_dict()) for q in ("Greta", "ONH begins")),
        json.dumps(graph.show(limit=100)),
        json.dumps(graph.show("ONH")),
        picture.read_text("utf-8"),
    ]
    for text in shown:
        answered = text.partition('"mode"')[2] or text  # past the question itself
        for secret in ("diary", "Night Heron", "Feldspar", "The Keeper"):
            assert secret not in answered
    with pytest.raises(InputError, match="knows no"):
        graph.show("Doctor Feldspar")
    everything = json.dumps(graph.show(limit=100, include_personal=True))
    assert "Feldspar" in everything and "Night Heron" in everything


def test_no_way_leads_through_a_record_that_may_not_be_seen(guarded: Engine) -> None:
    near = ids(guarded, "Greta")
    assert ROASTER not in near  # only the diary has to do with both
    assert ROASTER in ids(guarded, "Greta", include_personal=True)


def test_a_hidden_alias_is_no_way_to_a_hidden_page(guarded: Engine) -> None:
    assert "notes:diary.md" not in ids(guarded, "My diary")
    assert ids(guarded, "My diary", include_personal=True)[0] == "notes:diary.md"


def test_a_field_of_a_hidden_page_is_not_told(opened: Opened) -> None:
    engine = opened()
    engine.add(
        [
            page(
                *("falcon", "Falcon Report", "Nothing else."),
                domain="personal",
                metadata={"therapist": "Greta Oltmanns"},
            ),
            page("note", "Some note", "The Falcon Report was given to Greta Oltmanns."),
        ]
    )
    engine.graph.build()
    assert "therapist" not in json.dumps(engine.graph.show("Greta Oltmanns"))
    assert "Falcon Report" in json.dumps(engine.graph.show("Greta Oltmanns"))
    assert "therapist" in json.dumps(engine.graph.show("Greta Oltmanns", include_personal=True))


# ---------------------------------------------------------------------- what has changed since


def test_a_graph_that_is_behind_says_nothing_of_what_a_record_used_to_say(
    opened: Opened, tmp_path: Path
) -> None:
    engine = opened()
    secret = "Secret Divorce Plan by Doctor Feldspar, of which nobody must hear a single word."
    engine.add([*YARD, page("x", "Blue Harpoon", secret, domain="personal")])
    engine.graph.build()
    engine.add([page("x", "Green Kettle", "Water is boiled in it, and tea is made of that.")])
    graph, picture = engine.graph, tmp_path / "graph.html"
    graph.picture(picture, include_personal=True)
    shown = [
        json.dumps(graph.show(limit=100, include_personal=True)),
        json.dumps(graph.query("kettle", mode="global", include_personal=True).to_dict()),
        json.dumps(graph.query("Water", include_personal=True).to_dict()),
        picture.read_text("utf-8"),
    ]
    for text in shown:
        assert not any(name in text for name in ("Divorce", "Feldspar", "Harpoon"))
    with pytest.raises(InputError, match="knows no"):
        graph.show("Doctor Feldspar", include_personal=True)
    assert graph.query("Blue Harpoon").named == ()
    assert "notes:x.md" not in [hit.id for hit in engine.search("Blue Harpoon")]
    graph.build()
    assert graph.query("Green Kettle").named == ("Green Kettle",)


def test_a_record_that_is_written_again_as_it_was_stays_in_the_graph(yard: Engine) -> None:
    yard.add([{**YARD[1], "importance": 0.9}])
    assert ids(yard, "Greta")[0] == GRETA


def test_an_edit_of_one_record_leaves_the_others_in_the_graph(yard: Engine) -> None:
    yard.add([{**YARD[3], "content": "Beans from elsewhere."}])
    assert ids(yard, "Harbour crane licence")[:2] == [CRANE, GRETA]
    assert "notes:blend.md" not in ids(yard, "Drum roaster")
    yard.graph.build()
    assert yard.graph.status()["behind"] == 0


def test_a_graph_that_cannot_tell_what_changed_serves_nothing(
    yard: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.add([{**YARD[3], "content": "Beans from elsewhere."}])
    monkeypatch.setattr(type(yard.store.changes), "touched", lambda *_: None)
    with pytest.raises(SourceError, match=r"behind.*clew graph build"):
        yard.graph.query("Greta")
    found = yard.search("Greta")
    assert found.hits and any("clew graph build" in said for said in found.degraded)
    assert yard.graph.status()["behind"] == 1
    yard.graph.build()
    assert ids(yard, "Greta")[0] == GRETA
    yard.add([YARD[3]])
    yard.add([{**YARD[3], "content": "Beans from elsewhere."}])  # the same again: nothing to make
    yard.graph.build()
    assert ids(yard, "Greta")[0] == GRETA


# ---------------------------------------------------------------------- whose names they are

LOVERS = page(
    "lovers",
    "Evening",
    "[[greta|Snookums]] came to the Secret Lovers Club (SLC) again.",
    links=("greta",),
    domain="personal",
)


@pytest.mark.parametrize("name", ["Snookums", "SLC", "Secret Lovers Club"])
def test_an_alias_that_only_hidden_records_give_means_nothing(opened: Opened, name: str) -> None:
    engine = opened()
    engine.add([*YARD, LOVERS])
    engine.graph.build()
    assert engine.graph.query(name).named == ()
    assert all("graph" not in hit.signals for hit in engine.search(f"{name} licence"))
    with pytest.raises(InputError, match="knows no"):
        engine.graph.show(name)
    assert engine.graph.query(name, include_personal=True).named != ()


def test_names_that_only_hidden_records_join_stay_apart(opened: Opened) -> None:
    engine = opened()
    note = page("note", "Some note", "We met Snookums at SLC, and had tea.")
    club = page("club", "Old paper", "The Secret Lovers Club is closed.")
    engine.add([*YARD, LOVERS, note, club])
    engine.graph.build()
    found = engine.graph.query("Snookums")
    assert found.named == ("Snookums",)
    assert found.records[0]["id"] == "notes:note.md"
    assert GRETA not in [hit.id for hit in engine.search("Snookums", sources=["graph"])][:1]
    assert engine.graph.show("SLC")["spellings"] == ["SLC"]
    assert engine.graph.show("Secret Lovers Club")["records"] == ["notes:club.md"]
    assert engine.graph.query("Greta").records[0]["id"] == GRETA
    everything = engine.graph.query("Snookums", include_personal=True)
    assert everything.named == ("Greta Oltmanns",) and everything.records[0]["id"] == GRETA


def test_an_alias_goes_with_the_record_that_gave_it(yard: Engine) -> None:
    yard.add([{**YARD[0], "content": "The crane lifts boats.", "links": ()}])
    yard.add([page("b", "Another", "About [[greta|Old Tar]].", links=("greta",))])
    yard.graph.build()
    assert yard.graph.query("Old Tar").named == ("Greta Oltmanns",)
    yard.add([page("b", "Another", "About nobody.")])
    assert yard.graph.query("Old Tar").named == ()
    assert yard.graph.query("the boatwright").named == ("Greta Oltmanns",)


# ---------------------------------------------------------------------- more than has edges


def test_a_filter_finds_what_lies_beyond_the_edges_of_an_entity(opened: Opened) -> None:
    engine = opened()
    engine.add(
        {"id": f"r{i:03}", "title": f"Entry {i}", "content": "Mega Corp and Mega Corp again."}
        for i in range(250)
    )
    engine.add([{"id": "z", "title": "Last", "content": "Mega Corp did this too."}])
    engine.graph.build()
    assert ids(engine, "Mega Corp", filter={"ids": ["z"]}) == ["z"]
    assert engine.graph.query("Mega Corp", filter={"ids": ["z"]}).named == ("Mega Corp",)
    assert len(ids(engine, "Mega Corp", limit=240)) == 240


def test_an_entity_of_many_hidden_records_is_known_by_the_few_that_may_be_seen(
    opened: Opened,
) -> None:
    engine = opened()
    engine.add(
        {
            "id": f"r{i:03}",
            "title": f"Entry {i}",
            "content": "Mega Corp and Mega Corp again." if i < 400 else "Mega Corp was there.",
            "domain": "personal" if i < 400 else "work",
        }
        for i in range(405)
    )
    engine.graph.build()
    shown = engine.graph.show("Mega Corp")
    assert shown["mentions"] == 5 and len(shown["records"]) == 5
    assert len(ids(engine, "Mega Corp")) == 5
    everything = engine.graph.show("Mega Corp", include_personal=True)
    assert everything["mentions"] == 805
    foremost = engine.graph.show(limit=500, include_personal=True)["foremost"]
    assert ("Mega Corp", 405, 805, False) in [
        (one["name"], one["records"], one["mentions"], one["more"]) for one in foremost
    ]


# ---------------------------------------------------------------------- themes in a search


@pytest.mark.parametrize(("profile", "source"), [("default", "graph"), ("athena", "graphrag")])
def test_a_theme_that_is_what_was_asked_votes_for_its_records(
    opened: Opened, profile: str, source: str
) -> None:
    engine = opened(profile=profile)
    engine.add([*YARD, page("tide", "Tide tables", "The machine for gas stands idle in spring.")])
    engine.graph.build()

    def voted(query: str, **options: Any) -> set[str]:
        return {hit.id for hit in engine.search(query, **options) if source in hit.signals}

    # No page is named; "beans" stands in one of them, "gas" in the other.
    assert voted("beans gas spring") == {"notes:blend.md", ROASTER}
    assert voted("beans gas") == set()  # two words may fit by chance
    assert voted("beans tonnes spring boats") == set()  # half of it is another theme's


def test_a_theme_does_not_fit_by_what_may_not_be_seen(opened: Opened) -> None:
    engine = opened()
    secret = page(
        "blend2",
        "Harbour blend",
        "Beans from the roaster, see [it](roaster.md), with cardamom, saffron and quince.",
        links=("roaster.md",),
        domain="personal",
    )
    engine.add([*YARD, secret])
    engine.graph.build()
    query = "roaster cardamom saffron quince"
    assert engine.search(query, include_personal=True).trace["sources"]["graph"]["count"]
    assert not engine.search(query).trace["sources"]["graph"]["count"]
