import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def _attribute(name: str) -> Any:
    return getattr(import_module("clew.ranking.lookup_score"), name)


# The addresses under which docs/lookup.md has had what is in lookup_score.py, imported when used.
for _name in ("bm25", "credibility", "hybrid", "semantic"):
    _alias = ModuleType(f"{__name__}.{_name}")
    vars(_alias)["__getattr__"] = _attribute
    sys.modules[_alias.__name__] = globals()[_name] = _alias
