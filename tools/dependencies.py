"""What Clew depends on, all the way down, as it is installed here.

    python tools/dependencies.py licences    say what has no licence that Clew may be used with
    python tools/dependencies.py sbom        print a bill of materials (CycloneDX 1.6, JSON)

Both need no network. The packages for development are left out: nobody who installs Clew gets them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = "clew-search"
DEVELOPMENT = "dev"
PERMISSIVE = {
    *("MIT", "BSD", "Apache", "ISC", "PSF", "Python Software Foundation", "Zlib", "0BSD", "CC0"),
    *("MPL", "Mozilla", "CNRI-Python", "HPND", "Unlicense", "matplotlib"),
}
"""They may be used by anything; of the MPL only its own files must stay open."""
GIVEN = {
    "igraph": "an extra of its own, `graph`: nothing else needs it (docs/licences.md)",
    "psycopg": "an extra of its own, `postgres`, under the LGPL: it is used, not changed",
    "psycopg-binary": "as psycopg",
    "psycopg-pool": "as psycopg",
}
"""Packages that are under the GPL or LGPL, and why that binds nobody who does not ask for it."""


def licence(package: metadata.Distribution) -> str:
    """As the package says it, in a line."""
    said = package.metadata
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in said.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    text = (said.get("License") or "").strip().splitlines()
    return str(
        said.get("License-Expression")
        or " AND ".join(each for each in classifiers if each != "DFSG approved")
        or (text[0] if text else "")
    )


def walk(extras: set[str]) -> dict[str, tuple[metadata.Distribution, set[str]]]:
    """Name → what is installed under it, and what that needs; from Clew with these extras on."""
    found: dict[str, tuple[metadata.Distribution, set[str]]] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(PROJECT, extra) for extra in ("", *sorted(extras))]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system
        needs = found.setdefault(canonicalize_name(name), (package, set()))[1]
        for line in package.requires or []:
            each = Requirement(line)
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                needs.add(canonicalize_name(each.name))
                waiting += [(each.name, more) for more in ("", *each.extras)]
    return found


def extras() -> set[str]:
    every = metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    return {each for each in every if each != DEVELOPMENT}


def problems() -> Iterator[str]:
    """Packages with a licence that binds who uses Clew, or with none; and what the documents have
    otherwise."""
    core, every = walk(set()), walk(extras())
    for name, (package, _) in sorted(every.items()):
        said = licence(package)
        if re.search(r"\b[AL]?GPL|General Public", said):
            if name not in GIVEN or name in core:
                yield f"{name} is under {said}: Clew must do without, or have it as an extra"
        elif not any(re.search(rf"\b{re.escape(known)}", said, re.I) for known in PERMISSIVE):
            yield f"{name} is under {said or 'no licence that it names'}: look at it"
    table = (ROOT / "docs" / "licences.md").read_text("utf-8")
    for row in re.findall(r"^\| ([\w.-]+)[^|]*\|[^|]*\| ([^|]+) \|$", table, re.MULTILINE):
        name, written = canonicalize_name(row[0]), row[1]
        if name == "package" or name not in every:
            continue
        said = licence(every[name][0])
        first = re.match(r"[A-Za-z]+", written)
        aliases = {"GPL": "GPL|General Public", "PSF": "PSF|Python Software Foundation"}
        word = first[0] if first else written
        if not re.search(aliases.get(word, word), said, re.I):
            yield f"docs/licences.md says {written} of {name}, the package says {said}"


def bill() -> dict[str, Any]:
    """CycloneDX: https://cyclonedx.org/docs/1.6/json/"""
    every = walk(extras())

    def reference(name: str) -> str:
        return f"pkg:pypi/{name}@{every[name][0].version}"

    def component(name: str) -> dict[str, Any]:
        return {
            "type": "application" if name == PROJECT else "library",
            "bom-ref": reference(name),
            "name": name,
            "version": every[name][0].version,
            "purl": reference(name),
            "licenses": [{"license": {"name": licence(every[name][0]) or "unknown"}}],
        }

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(PROJECT)},
        "components": [component(name) for name in sorted(every) if name != PROJECT],
        "dependencies": [
            {
                "ref": reference(name),
                "dependsOn": [reference(each) for each in sorted(needs) if each in every],
            }
            for name, (_, needs) in sorted(every.items())
        ],
    }


def main() -> int:
    if sys.argv[1:] == ["sbom"]:
        print(json.dumps(bill(), indent=2))
        return 0
    found = list(problems())
    for each in found:
        print(each, file=sys.stderr)
    if not found:
        print(f"{len(walk(extras()))} packages, and no licence that is in the way.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
