"""Clew inside other frameworks: one thin module each, and none of them is imported by Clew itself.

clew.adapters.langchain     ClewRetriever    pip install 'clew-search[langchain]'
clew.adapters.llama_index   ClewRetriever    pip install 'clew-search[llama-index]'
clew.adapters.langgraph     ClewStore        pip install 'clew-search[langgraph]'
"""

from __future__ import annotations

from clew.errors import ConfigError


def missing_package(framework: str, extra: str, error: ImportError) -> ConfigError:
    """What to say when the framework is not here, or too old for what the adapter needs of it."""
    return ConfigError(
        f"the adapter for {framework} could not import what it needs ({error}): "
        f"pip install 'clew-search[{extra}]'"
    )
