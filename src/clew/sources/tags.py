"""Records that are tagged with what the query says.

Tags come from front matter, inline `#tags` and the names of folders; the store's own index knows
them. As in Athena they fall into two shards, A–M and N–Z, each with ten votes, so that a broad tag
cannot crowd the others out. A workspace may keep shard files of its own beside that (lines such as
`#risk: a.md, b/c.md`): their paths are looked up in the store, so filters hold for them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from clew.errors import SourceError
from clew.filter import Filter
from clew.protocols import Context, Source, Store
from clew.sources import file_state
from clew.text.analyser import fits
from clew.text.passage import lineage, tag_forms
from clew.types import Answer, Candidate, Query

__all__ = ["tags"]

PER_SHARD = 10
STEP = 0.05
"""Each place down the list costs this much."""
LONGEST_SHARD = 16 * 1024 * 1024
MOST_PATHS = 50
"""Paths from shard files that are looked up."""


def tags(root: Path, *, shards: tuple[str, ...] = (), per_shard: int = PER_SHARD) -> Source:
    """Exact matches of whole tags, and what lies below them; those that take up more of the query's
    words first. The share of the words they take up is what its `floor` is of."""
    return TagSource(tuple(root / shard for shard in shards), per_shard)


@dataclass(frozen=True)
class TagSource(Source):
    """The tags of the store and of the shard files."""

    files: tuple[Path, ...]
    per_shard: int

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate] | Answer:
        forms, per_shard = tag_forms(query.text), self.per_shard
        problems: list[str] = []
        found: list[Candidate] = []
        kept = dict(_from_files(self.files, forms, query, context, problems))
        for shard in _by_first_letter(forms):
            groups = [(float(forms[form]), (form,)) for form in shard]
            tagged = context.store.labelled(
                ("tag", "folder"), groups, query.filter, limit=per_shard, terms=query.terms
            )
            fits = {candidate.id: candidate.score for candidate in tagged}
            for name, has in kept.items():
                if mine := has.intersection(shard):
                    fits[name] = max(fits.get(name, 0.0), sum(forms[form] for form in mine))
            least = query.floor * len(query.terms.words)
            fits = {name: fit for name, fit in fits.items() if fit >= least}
            best = sorted(fits, key=lambda name: (-fits[name], name))[:per_shard]
            found += [Candidate(name, 1.0 - STEP * i) for i, name in enumerate(best)]
        ranked = _one_each(found)[: query.depth]
        return Answer(ranked, "; ".join(problems)) if problems else ranked

    def freshness(self, store: Store) -> str:
        return file_state(*self.files)


def _by_first_letter(forms: Mapping[str, int]) -> tuple[list[str], list[str]]:
    first = [form for form in forms if form[:1] <= "m"]
    return first, [form for form in forms if form[:1] > "m"]


def _one_each(found: Sequence[Candidate]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for candidate in found:
        known = best.get(candidate.id)
        if known is None or candidate.score > known.score:
            best[candidate.id] = candidate
    return sorted(best.values(), key=lambda c: (-c.score, c.id))


# ---------------------------------------------------------------------- shard files


def _from_files(
    files: Sequence[Path],
    forms: Mapping[str, int],
    query: Query,
    context: Context,
    problems: list[str],
) -> Iterator[tuple[str, set[str]]]:
    """Records that shard files name under these tags. One file that cannot be read is a problem,
    the others still count; where none is there, the workspace has no such files."""
    listed: dict[str, set[str]] = {}
    there = [file for file in files if file.exists()]
    problems += [f"{file.name} is missing" for file in files if there and file not in there]
    for file in there:
        try:
            shard = _shard(file, file.stat().st_mtime_ns, file.stat().st_size)
        except (OSError, SourceError) as error:
            problems.append(str(error))
            continue
        for form in forms:
            for path in shard.get(form, ()):
                listed.setdefault(path, set()).add(form)
    best = sorted(listed, key=lambda path: (-len(listed[path]), path))[:MOST_PATHS]
    ids = {f"{root}:{path}": listed[path] for path in best for root in context.store.roots()}
    if ids and (wanted := query.filter.narrowed(Filter(ids=tuple(ids)))) is not None:
        for record in context.store.select(wanted, limit=len(ids)):
            if fits(query.terms, record.content):
                yield record.id, ids[record.id]


@lru_cache(maxsize=8)
def _shard(file: Path, mtime_ns: int, size: int) -> dict[str, tuple[str, ...]]:
    """Tag → paths. Read again when the file has changed."""
    if size > LONGEST_SHARD:
        raise SourceError(f"{file.name} is larger than {LONGEST_SHARD >> 20} MB: split it")
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{file.name} is not UTF-8 (byte {error.start}): save it as such"
        ) from None
    shard: dict[str, tuple[str, ...]] = {}
    tag = ""
    for line in text.splitlines():
        if named := _TAG.search(line):
            tag = named[1].casefold()
        for name in lineage(tag):
            shard[name] = (*shard.get(name, ()), *_PATH.findall(line))
    return shard


_TAG = re.compile(r"#([\w/-]+)")
_PATH = re.compile(r"[\w./-]+\.\w+")
