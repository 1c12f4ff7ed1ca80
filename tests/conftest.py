"""Shared by every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes depends on what else the machine is doing, so no test fails for it.
settings.register_profile("clew", deadline=None, print_blob=True)
settings.load_profile("clew")
