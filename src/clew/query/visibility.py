"""What a search may show, whatever it asks for."""

from __future__ import annotations

from clew.filter import Filter

__all__ = ["PERSONAL", "SKILLS", "visible"]

PERSONAL = "personal"
"""The domain that is left out unless it is asked for."""
SKILLS = ".agent/skills/"
_NOT_PERSONAL = Filter(not_domain=PERSONAL)
_SKILLS_ONLY = Filter(within=SKILLS)


def visible(wanted: Filter, *, include_personal: bool, skills_only: bool) -> Filter:
    """The filter, narrowed to what may be seen. It holds in every source, as any filter does, and
    is part of every cache's key. To filter by the personal domain is to ask for it."""
    if not include_personal and PERSONAL not in wanted.domain:
        wanted = wanted & _NOT_PERSONAL
    return wanted & _SKILLS_ONLY if skills_only else wanted
