"""Which names are entities, what they are the same as, and where links lead."""

from __future__ import annotations

import pytest
from yard import Opened, built, page

from clew.errors import InputError


def linking(name: str, words: str, target: str) -> dict[str, object]:
    text = f"See [{words}]({target}), as said before."
    return page(name, f"Note on {name}", text, links=(target.partition("#")[0],))


@pytest.mark.parametrize(
    ("words", "target", "title"),
    [
        ("Linux", "install.md", "Install kubectl on Linux"),  # a part that is not its beginning
        ("the machine", "install.md", "Drum roaster"),  # not written as a name
        ("DNS", "install.md#dns", "Cluster Architecture"),  # a section of it
    ],
)
def test_the_words_of_a_link_that_are_no_title_name_nothing(
    opened: Opened, words: str, target: str, title: str
) -> None:
    engine = built(opened(), [page("install", title, "Words."), linking("a", words, target)])
    assert title not in engine.graph.query(words).named


def test_a_word_that_many_write_is_not_the_page_that_one_links_to(opened: Opened) -> None:
    others = [page(f"o{i}", f"Sheet {i}", "We run it on Linux, always.") for i in range(5)]
    pages = [page("kernel", "The kernel guide", "Words."), linking("a", "Linux", "kernel.md")]
    assert built(opened(), [*pages, *others]).graph.query("Linux").named == ("Linux",)


def test_an_acronym_is_the_name_that_it_is_the_initials_of(opened: Opened) -> None:
    text = "A PodDisruptionBudget limits what is down; the PDB of a job is kept."
    engine = built(opened(), [page("a", "Limits", text), page("b", "Other", "See the PDB first.")])
    assert set(engine.graph.show("PDB")["records"]) == {"notes:a.md", "notes:b.md"}
    assert engine.graph.show("PDB")["name"] == engine.graph.show("PodDisruptionBudget")["name"]


@pytest.mark.parametrize("name", ["true", "Let", "auto_generated", "shortcode", "Before you begin"])
def test_templates_literals_and_verbs_are_no_entities(opened: Opened, name: str) -> None:
    text = (
        "---\nauto_generated: true\n---\n<!-- auto_generated -->\n## Before you begin\n"
        "Set it to `true`. Let us go; then Let's go. {{< shortcode >}} and {% shortcode %}."
    )
    engine = built(opened(), [page(f"p{i}", f"Page Nr {i}", text) for i in range(4)])
    with pytest.raises(InputError, match="knows no"):
        engine.graph.show(name)


def test_a_name_is_told_without_the_marks_around_it(opened: Opened) -> None:
    text = "It uses Trac_ to plan, and Sphinx__ for its docs. Without Trac_ no :meth:`.Query.only`."
    pages = [page("a", "The ``File`` object", text), page("b", "Tools", f"It says: {text}")]
    engine = built(opened(), pages)
    for name in ("Trac", "Sphinx", "The File object", "Query.only"):
        assert engine.graph.show(name)["name"] == name


@pytest.mark.parametrize(
    "target",
    ["/docs/concepts/pods/", "/docs/concepts/pods.md", "../concepts/pods", "docs/concepts/pods"],
)
def test_links_from_a_sites_root_are_resolved_by_the_end_of_a_path(
    opened: Opened, target: str
) -> None:
    def at(path: str, title: str, text: str, links: tuple[str, ...] = ()) -> dict[str, object]:
        return {**page("x", title, text, links=links), "id": f"site:{path}", "path": path}

    pages = [
        at("content/en/docs/concepts/pods.md", "Pod things", "Words."),
        at("content/en/docs/tasks/run.md", "Running", f"[x]({target})", (target,)),
        at("content/en/docs/other/pods.md", "Other things", "Words."),
    ]
    engine = built(opened(), pages)
    assert engine.graph.status()["links"] == 1


def test_a_files_common_name_is_not_what_its_page_is_called(opened: Opened) -> None:
    pages = [
        {**page("names", "Object Names and IDs", "Words.")},
        page("b", "Something", "It has names, and the Names of others."),
        page("rbac", "Using RBAC Authorization", "Words."),
    ]
    engine = built(opened(), pages)
    assert "Object Names and IDs" not in engine.graph.query("names").named
    assert engine.graph.query("rbac").named == ("Using RBAC Authorization",)
