"""run_search: a search that prints its answer, for scripts and agents that read what is printed."""

from __future__ import annotations

from clew.cli import answer
from clew.cli.options import existing_root
from clew.engine import open_engine

__all__ = ["run_search"]


def run_search(
    query: str,
    limit: int = 10,
    strict: bool = False,
    rerank: bool = False,
    debug: bool = False,
    json_output: bool = False,
    include_personal: bool = False,
    skills_only: bool = False,
) -> None:
    """Search the store at or above the current folder and print what `clew search --format athena`
    would."""
    # Nothing is embedded ahead, as the command does: where the answer was kept, this process may
    # end before a model that nobody waits for has loaded, and that aborts it.
    with open_engine(existing_root(None), create=False) as engine:
        found = engine.search(
            query,
            limit=limit,
            rerank=rerank or None,
            explain=debug,
            strict=strict,
            include_personal=include_personal,
            skills_only=skills_only,
        )
    answer.show(found, form="json" if json_output else "athena", explain=debug)
