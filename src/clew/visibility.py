"""What a search may show, whatever it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from clew.filter import PERSONAL, Filter, domain_of
from clew.types import Record

__all__ = ["SKILLS", "may_be_seen", "visible", "wanted_beside"]

SKILLS = ".agent/skills/"
_SKILLS_ONLY = Filter(within=SKILLS)


def visible(
    wanted: Filter, *, include_personal: bool, skills_only: bool, personal: Sequence[str]
) -> Filter:
    """The filter, narrowed to what may be seen. It holds in every source, as any filter does, and
    is part of every cache's key. To filter by the personal domain is to ask for it. `personal` are
    the folders that the settings call so now, whatever they did when their files were indexed."""
    if not include_personal and PERSONAL not in wanted.domain:
        wanted = wanted & Filter(not_domain=PERSONAL, not_within=personal)
    return wanted & _SKILLS_ONLY if skills_only else wanted


def wanted_beside(filter: Filter) -> Filter:
    """What a filter asks for beside what may be seen."""
    return filter.without("not_domain", "not_within")


def may_be_seen(record: Record, filter: Filter) -> bool:
    """Whether this filter lets it be seen, for what a source named that may not have looked."""
    hidden = record.path is not None and record.path.startswith(filter.not_within)
    return not hidden and domain_of(record.domain) not in filter.not_domain
