"""What a resident process says to `clew search` and `clew recall` of the same user: the text that
these would print themselves.

A command that this process cannot answer as they would (another store, other settings, an error to
be said) is refused with 409, and does its work itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import click
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clew import config as settings
from clew import trust
from clew.cli import terminal
from clew.cli.memory import answer_recall, recall
from clew.cli.search import answer_request, read_request, search
from clew.cli.terminal import Form
from clew.cli.view import AnswerView, Places, takes_links
from clew.errors import ClewError
from clew.resident import COMMANDS, digest_settings
from clew.serve.guard import is_local_socket
from clew.serve.routing import Stores, Work, render_json
from clew.serve.stores import ServedStore, ServedStores
from clew.sources import file_state

routes = APIRouter(include_in_schema=False)
_SLOW = frozenset(("--agentic", "--tree"))
"""Options with which a search may ask a chat model: see serve/http.py."""


class CommandRequest(BaseModel):
    """A command as it was typed, and where."""

    arguments: list[str] = Field(min_length=1)
    place: str
    folder: str
    settings: str
    terminal: bool
    columns: int
    display: dict[str, str]


def _settings() -> tuple[object, ...]:
    """What decides the settings of the stores beside the arguments."""
    return digest_settings(), file_state(trust.user_folder() / settings.FILE_NAME)


_began = _settings()


async def _check_local(request: Request) -> None:
    if not is_local_socket(request.scope):
        raise HTTPException(404)


@routes.post("/command", dependencies=[Depends(_check_local)])
async def answer_command(
    said: CommandRequest, stores: Stores, work: Work, request: Request
) -> Response:
    if said.arguments[0] not in COMMANDS:
        raise HTTPException(400, f"only {' and '.join(COMMANDS)} are answered here")
    if _settings() != _began or said.settings != _began[0]:
        raise HTTPException(409)
    if not _SLOW.isdisjoint(said.arguments):
        work = request.app.state.asking
    try:
        return render_json(await work.run(_answer, stores, said))
    except (click.ClickException, click.exceptions.Exit, ClewError, OSError) as error:
        raise HTTPException(409) from error


def _answer(stores: ServedStores, said: CommandRequest) -> dict[str, Any]:
    name, *words = said.arguments
    store = _find_store(stores, said.place)
    command = {"search": search, "recall": recall}[name]
    context = command.make_context(name, words, obj=said.folder)
    chosen = dict(context.params)
    explain = chosen["explain"]
    form: Form
    if name == "search":
        _check_place(chosen["store"], said)
        if chosen["html"] is not None:
            raise ClewError("a page is written by the command itself")
        links = said.terminal and takes_links(said.display)
        places = Places(store.engine, start=said.folder, links=links)
        data, shown, form = answer_request(store.engine, read_request(**chosen), places)
    else:
        named = context.get_parameter_source("db") is click.core.ParameterSource.COMMANDLINE
        db = chosen.pop("db")
        _check_place(Path(said.folder, db.expanduser()) if named else None, said)
        form = "json" if chosen.pop("json") else "clew"
        chosen.pop("explain")
        assert store.memory is not None
        data, shown = answer_recall(store.memory, **chosen)
    text = terminal.dump_json(data) + "\n" if form == "json" else _draw(shown, form, explain, said)
    return {"output": text, "error": "".join(context.meta.get("notes", ())), "code": 0}


def _find_store(stores: ServedStores, place: str) -> ServedStore:
    for each in stores:
        if os.path.realpath(each.place) == os.path.realpath(place):
            return each
    raise ClewError(f"{place} is not served here")


def _check_place(named: Path | None, said: CommandRequest) -> None:
    if named is not None and os.path.realpath(named) != os.path.realpath(said.place):
        raise ClewError("another store is meant")


def _draw(shown: AnswerView, form: Form, explain: bool, said: CommandRequest) -> str:
    lines = terminal.answer_lines(shown, form=form, explain=explain)
    if not said.terminal:
        return "\n".join(each.text for each in lines) + "\n"
    drawn = StringIO()
    display: Mapping[str, str] = said.display
    out = terminal.console(
        file=drawn, force_terminal=True, width=said.columns or None, _environ=display
    )
    terminal.draw(lines, out=out)
    return drawn.getvalue()
