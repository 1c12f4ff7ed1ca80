"""The address under which docs/lookup.md has had these: see sources/web.py."""

from clew.sources.web import Page, SearXNG, WebSearch, pages

__all__ = ["Page", "SearXNG", "WebSearch", "pages"]
