"""Every command and option is documented: a new one without a word in docs/cli.md fails here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click
import pytest

from clew.cli import app
from clew.config import about

DOCS = Path(__file__).parents[2] / "docs"


def _commands() -> Iterator[tuple[str, list[str], str]]:
    """(command, its option names, its help)."""
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        for words, leaf in (
            [(f"{name} {sub}", c) for sub, c in command.commands.items()]
            if hasattr(command, "commands")
            else [(name, command)]
        ):
            options = [o for p in leaf.params for o in p.opts if o.startswith("--")]
            yield words, [o for o in options if o != "--help"], leaf.help or ""


@pytest.mark.parametrize(("command", "options", "help"), list(_commands()))
def test_every_command_and_option_is_in_the_docs(
    command: str, options: list[str], help: str
) -> None:
    text = (DOCS / "cli.md").read_text("utf-8")
    assert help.strip(), f"{command} has no --help text"
    heading = re.search(rf"^## clew {command.split()[0]}\b.*$", text, re.MULTILINE)
    assert heading, f"docs/cli.md has no section on {command}"
    for word in command.split()[1:]:
        assert word in heading[0]
    for option in options:
        assert option in text, f"docs/cli.md does not mention {option} of {command}"


def test_the_list_of_options_is_that_of_the_commands() -> None:
    spec = spec_from_file_location("commands_page", DOCS / "commands.py")
    assert spec is not None and spec.loader is not None
    page = module_from_spec(spec)
    spec.loader.exec_module(page)
    text = (DOCS / "cli.md").read_text("utf-8")
    assert page.renew(text) == text, "run: python docs/commands.py docs/cli.md"


def test_the_least_useful_threshold_is_the_one_described() -> None:
    from clew.index.vectors import TAIL_ROWS

    assert f"Below {TAIL_ROWS:,}" in about("ivf_threshold")


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pictures_fetch_nothing_from_the_network() -> None:
    pictures = list(DOCS.rglob("*.svg"))
    assert pictures
    for picture in pictures:
        text = re.sub(r'xmlns(:\w+)?="[^"]*"|<!--.*?-->', "", picture.read_text("utf-8"))
        assert not re.search(r"https?:|//\w", text), picture


def test_the_map_of_the_tree_is_true() -> None:
    """Every module stands in docs/architecture.md, and nothing stands there that is not."""
    source = DOCS.parent / "src" / "clew"
    text = (DOCS / "architecture.md").read_text("utf-8")
    drawn = text[text.index("src/clew/") : text.index("tests/  ")]
    named = set(re.findall(r"\b([a-z_0-9]+\.(?:py|toml))\b", drawn))
    modules = {
        p.name
        for p in source.rglob("*")
        if p.suffix in (".py", ".toml")
        and p.name not in ("__init__.py", "__main__.py")
        and not {"readers", "cli"} & set(p.relative_to(source).parts)
    }
    assert modules - named == set()
    present = {p.name for p in source.rglob("*")} | {"clew.toml"}
    assert named - present == set()


def test_the_licence_of_every_dependency_is_named() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    text = (DOCS / "licences.md").read_text("utf-8").lower()
    for requirement in [*project["dependencies"], *(r for extra in extras for r in extra)]:
        name = re.split(r"[><=\[]", requirement)[0].lower()
        assert name == "clew-search" or name in text, f"docs/licences.md leaves out {name}"
