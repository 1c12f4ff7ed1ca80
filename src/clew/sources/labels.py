"""Records by their labels: tags that are what the query says, file names with its words.

Tags come from front matter, inline `#tags` and the names of folders; the store's own index knows
them. As in Athena they fall into two shards, A–M and N–Z, each with ten votes, so that a broad tag
cannot crowd the others out. A workspace may keep shard files of its own beside that (lines such as
`#risk: a.md, b/c.md`): their paths are looked up in the store, so filters hold for them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from clew.errors import SourceError
from clew.filter import Filter
from clew.protocols import Context, Source, Store
from clew.sources import FunctionSource, file_state
from clew.text.analyser import fits
from clew.text.passage import lineage, tag_forms
from clew.types import Answer, Candidate, Query

STEP = 0.05
"""Each place down the list of a shard costs this much."""
LONGEST_SHARD = 16 * 1024 * 1024
MOST_PATHS = 50
"""Paths from shard files that are looked up."""
_TAG = re.compile(r"#([\w/-]+)")
_PATH = re.compile(r"[\w./-]+\.\w+")


def filenames(root: Path, *, best: int = 10) -> Source:
    """The share of the query's words in the file's name, without its suffix; that is what its
    `floor` is of."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words = query.terms.words
        groups = [(1 / len(words), word) for word in words]
        found = context.store.labelled(
            ("name",), groups, query.filter, limit=min(best, query.depth), terms=query.terms
        )
        return [c for c in found if c.score >= query.floor]

    return FunctionSource(source, outside="", by_terms=True)


def tags(root: Path, *, shards: tuple[str, ...] = (), per_shard: int = 10) -> Source:
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
        best: dict[str, Candidate] = {}
        named = self._named_in_files(forms, query, context.store, problems)
        for first_half in (True, False):
            shard = [form for form in forms if (form[:1] <= "m") is first_half]
            groups = [(float(forms[form]), (form,)) for form in shard]
            tagged = context.store.labelled(
                ("tag", "folder"), groups, query.filter, limit=per_shard, terms=query.terms
            )
            worths = {candidate.id: candidate.score for candidate in tagged}
            for name, has in named.items():
                if mine := has.intersection(shard):
                    worths[name] = max(worths.get(name, 0.0), sum(forms[form] for form in mine))
            least = query.floor * len(query.terms.words)
            enough = [name for name, worth in worths.items() if worth >= least]
            enough.sort(key=lambda name: (-worths[name], name))
            for i, name in enumerate(enough[:per_shard]):
                one = Candidate(name, 1.0 - STEP * i)
                if name not in best or one.score > best[name].score:
                    best[name] = one
        ranked = sorted(best.values(), key=lambda c: (-c.score, c.id))[: query.depth]
        return Answer(ranked, "; ".join(problems)) if problems else ranked

    def freshness(self, store: Store) -> str:
        return file_state(*self.files)

    def _named_in_files(
        self, forms: Mapping[str, int], query: Query, store: Store, problems: list[str]
    ) -> dict[str, set[str]]:
        """Records that shard files name under these tags. One file that cannot be read is a
        problem, the others still count; where none is there, the workspace has no such files."""
        listed: dict[str, set[str]] = {}
        there = [file for file in self.files if file.exists()]
        problems += [
            f"{file.name} is missing" for file in self.files if there and file not in there
        ]
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
        ids = {f"{root}:{path}": listed[path] for path in best for root in store.files.roots()}
        wanted = query.filter.narrowed(Filter(ids=tuple(ids))) if ids else None
        if wanted is None:
            return {}
        records = store.select(wanted, limit=len(ids))
        return {r.id: ids[r.id] for r in records if fits(query.terms, r.content)}


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
