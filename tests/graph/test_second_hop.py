"""The second hop: the page behind the page that a question names, in its own place of the list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yard import Opened, built, page

from clew import Engine, Filter
from clew.graph.extract import TitleFinder, title_keys
from clew.ranking.fusion import Fused, keep_places
from clew.types import Candidate

FILM, DIRECTOR = "notes:film.md", "notes:ada.md"
PAGES = [
    page("film", "The Glass Ferry", "A film of 1931, directed by Ada Norell in Malmö."),
    page("ada", "Ada Norell (painter)", "She came from Lund and studied drawing."),
    *(
        page(f"other-{i}", f"Story number {i}", f"Where was somebody of film {i} born? A director.")
        for i in range(8)
    ),
]
QUESTION = "Where was the director of The Glass Ferry born?"


def found(engine: Engine, question: str = QUESTION, **options: object) -> list[str]:
    result = engine.search(question, limit=5, **options)  # type: ignore[arg-type]
    assert not any("graph" in said for said in result.degraded)
    return [hit.id for hit in result]


def test_the_page_behind_stands_right_after_the_one_that_names_it(opened: Opened) -> None:
    engine = opened()
    engine.add(PAGES)
    before = found(engine)
    assert before[0] == FILM and DIRECTOR not in before
    engine.graph.build()
    assert found(engine)[:2] == [FILM, DIRECTOR]
    result = engine.search(QUESTION, limit=5)
    assert result.trace["sources"]["graph"]["behind"] == {FILM: [DIRECTOR]}
    assert [hit.rrf_score for hit in result] == sorted((h.rrf_score for h in result), reverse=True)
    assert found(engine, sources=["graph"])[:2] == [FILM, DIRECTOR]
    assert DIRECTOR not in found(engine, sources=["keyword"])


@pytest.mark.parametrize("question", ["The Glass Ferry", "film of 1931: The Glass Ferry in Malmö"])
def test_a_question_that_the_named_page_answers_leads_no_further(
    opened: Opened, question: str
) -> None:
    result = built(opened(), PAGES).search(question, limit=5)
    assert result[0].id == FILM and "behind" not in result.trace["sources"]["graph"]


def test_a_link_leads_on_as_a_name_does(opened: Opened) -> None:
    linked = page("film", "The Glass Ferry", "By [her](ada.md), 1931.", links=("ada.md",))
    assert found(built(opened(), [linked, *PAGES[1:]]))[:2] == [FILM, DIRECTOR]


def test_a_page_that_names_a_thousand_others_leads_nowhere(opened: Opened) -> None:
    others = [page(f"p{i}", f"Person Nr {i}", "Somebody.") for i in range(1000)]
    text = "Directed by " + ", ".join(f"Person Nr {i}" for i in range(1000))
    engine = built(opened(), [page("film", "The Glass Ferry", text), *others])
    assert "behind" not in engine.search(QUESTION).trace["sources"]["graph"]
    assert engine.graph.status()["links"] <= 200


def test_two_pages_of_one_title_both_stand_behind(opened: Opened) -> None:
    namesake = page("ada-2", "Ada Norell (sailor)", "Another of that name.")
    assert set(found(built(opened(), [*PAGES, namesake]))[1:3]) == {DIRECTOR, "notes:ada-2.md"}


def test_titles_that_are_common_words_are_no_names() -> None:
    find = TitleFinder(["use", "set", "the", "malta"])
    assert find("Use it. Set the table. The Set Theory group; they use a Set Square.") == []
    assert find("She went to Malta, and in Malta she stayed.") == ["malta"]


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Abdülaziz", "The third wife of Sultan Abdülaziz of Sund."),
        ("Socrates", "She was Socrates' eldest."),
        ("Socrates", "At the time of Socrates’s trial."),
        ("TLS", "It needs TLS, always."),
        ("Pods", "The name of a Pod of Sund."),
    ],
)
def test_a_title_of_one_word_is_found_as_it_is_written(title: str, text: str) -> None:
    assert TitleFinder(title_keys(title))(text) == title_keys(title)


def test_a_title_of_one_word_is_no_part_of_a_longer_one() -> None:
    find = TitleFinder(title_keys("Pods"))
    assert find("A PodDisruptionBudget, a Pod-like thing and the Pod Security Policy.") == []


def test_words_with_a_hyphen_are_there_only_if_all_of_them_are(opened: Opened) -> None:
    pages = [
        page("film", "Edith Brand", "A queen in the north, wife of Ada Norell in Malmö."),
        *PAGES[1:],
    ]
    assert found(built(opened(), pages), "Edith Brand's mother-in-law")[:2] == [FILM, DIRECTOR]


def test_the_words_of_another_title_are_asked_of_the_page(opened: Opened) -> None:
    pages = [page("place", "Place of birth", "Where somebody was born."), *PAGES]
    question = "Place of birth of who directed the film The Glass Ferry"
    behind = built(opened(), pages).search(question).trace["sources"]["graph"]["behind"]
    assert behind[FILM] == [DIRECTOR]


def test_a_namesake_is_not_what_a_page_means_by_its_own_name(opened: Opened) -> None:
    text = "The Glass Ferry is a film of 1931, directed by Ada Norell in Malmö."
    others = [page(f"v{i}", f"The Glass Ferry (19{i} film)", "A film.") for i in range(50, 55)]
    film = page("film", "The Glass Ferry (1931 film)", text)
    assert "notes:ada.md" in found(
        built(opened(), [film, *PAGES[1:], *others]),
        "Where was the director of The Glass Ferry (1931 film) born?",
    )


def test_one_word_of_a_title_with_an_aside_is_what_few_mean_by_it(opened: Opened) -> None:
    many = [
        page(f"m{i}", f"Minutes {i}", "In the Empire." if i < 12 else "No.") for i in range(400)
    ]
    film = page("film", "The Glass Ferry", "Made in the Empire of Sund by Ada Norell in Malmö.")
    pages = [film, PAGES[1], page("empire", "Empire (2002 film)", "Another."), *many]
    engine = built(opened(), pages)
    assert engine.search(QUESTION).trace["sources"]["graph"]["behind"] == {FILM: [DIRECTOR]}
    few = built(opened("few"), [film, *pages[1:4]])
    assert "notes:empire.md" in few.search(QUESTION).trace["sources"]["graph"]["behind"][FILM]


def test_what_nearly_all_pages_name_says_nothing(opened: Opened) -> None:
    many = [page(f"m{i}", f"Minutes {i}", "Written down by Ada Norell.") for i in range(30)]
    engine = built(opened(), [*PAGES, *many])
    assert "behind" not in engine.search(QUESTION).trace["sources"]["graph"]


def test_links_in_a_circle_and_to_oneself_end(opened: Opened) -> None:
    pages = [
        page(
            "film", "The Glass Ferry", "[x](film.md) by [her](ada.md)", links=("film.md", "ada.md")
        ),
        page("ada", "Ada Norell", "Made [it](film.md).", links=("film.md",)),
    ]
    assert found(built(opened(), pages)) == [FILM, DIRECTOR]


def test_titles_and_anchors_of_other_scripts(opened: Opened) -> None:
    pages = [
        page("a", "千と千尋の神隠し", "監督は宮崎駿である。"),
        page("b", "宮崎駿", "東京に生まれた。"),
        page("c", "Война и мир", "Роман, который написал Лев Толстой."),
        page("d", "Лев Толстой", "Родился в Ясной Поляне."),
        page("e", "Ferry", "See [渡し舟](b.md) and [לוטם](d.md).", links=("b.md", "d.md")),
        *(page(f"x{i}", f"別の映画{i}", "生年は不明。") for i in range(5)),
    ]
    engine = built(opened(), pages)
    assert found(engine, "千と千尋の神隠しの監督の出生地")[:2] == ["notes:a.md", "notes:b.md"]
    assert found(engine, "Где жил автор книги Война и мир")[:2] == ["notes:c.md", "notes:d.md"]


def test_nothing_shows_of_a_hidden_page_that_names_a_visible_one(opened: Opened) -> None:
    engine = opened()
    engine.add([page("film", "The Glass Ferry", "By Ada Norell.", collection="secret"), *PAGES[1:]])
    engine.graph.build()
    seen = Filter(collection="default")
    result = engine.search(QUESTION, filter=seen)
    assert "behind" not in result.trace["sources"]["graph"]
    engine.graph.drop()
    without = engine.search(QUESTION, filter=seen)
    assert [hit.id for hit in result] == [hit.id for hit in without]


def test_no_hidden_page_stands_behind_a_visible_one(opened: Opened) -> None:
    engine = opened()
    engine.add([PAGES[0], PAGES[1] | {"collection": "secret"}, *PAGES[2:]])
    engine.graph.build()
    assert DIRECTOR not in found(engine, filter=Filter(collection="default"))


def test_an_edit_and_a_new_title_are_followed(opened: Opened) -> None:
    engine = built(opened(), [PAGES[0], *PAGES[2:]])
    assert found(engine)[0] == FILM and DIRECTOR not in found(engine)
    engine.add([PAGES[1]])
    report = engine.graph.build()
    assert report.read == 1
    assert found(engine)[:2] == [FILM, DIRECTOR]
    engine.add([page("film", "The Glass Ferry", "A film of 1931 in Malmö.")])
    assert engine.graph.build().read == 1
    assert DIRECTOR not in found(engine)


def test_the_graph_of_another_generation_leads_through_nothing_that_changed(
    opened: Opened,
) -> None:
    engine = built(opened(), PAGES)
    engine.add([page("film", "The Glass Ferry", "A film of 1931, by nobody.")])
    assert DIRECTOR not in found(engine)


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=20), max_size=5))
def test_any_text_and_titles_can_be_read(text: str, titles: list[str]) -> None:
    keys = [each for title in titles for each in title_keys(title)]
    names = TitleFinder(keys)(text)
    assert set(names) <= set(keys) and len(set(names)) == len(names)


@given(
    st.lists(st.integers(0, 9), unique=True), st.dictionaries(st.integers(0, 9), st.integers(0, 12))
)
def test_places_are_kept_and_nothing_is_lost_or_twice(
    ids: list[int], behind: dict[int, int]
) -> None:
    fused = [Fused(str(i), 1.0 / (1 + at), "keyword", {}) for at, i in enumerate(ids)]
    given = {str(hit): [Candidate(str(to), 1.0)] for hit, to in behind.items()}
    kept = keep_places(fused, given, "graph")
    names = [each.id for each in kept]
    assert set(map(str, ids)) <= set(names) and len(set(names)) == len(names)
    assert [each.score for each in kept] == sorted((each.score for each in kept), reverse=True)
    for hit, (to,) in given.items():
        if hit in names and to.id in names and to.id not in given:
            assert names.index(to.id) <= names.index(hit) + 1 or to.id != given[hit][0].id
