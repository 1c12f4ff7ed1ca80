"""The lists that the store itself gives: by words and by meaning from its two indexes, by tags and
file names, by single lines of its texts, and by what its graph knows. What is written is seen by
the next search, and filters hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from clew.errors import ConfigError, SourceError, check_known
from clew.filter import Filter
from clew.graph import STATE, is_built, naming_damage
from clew.models import traits
from clew.protocols import Context, Source, Store
from clew.sources import FunctionSource, file_state
from clew.text.analyser import fits, tokens
from clew.text.passage import lineage, tag_forms
from clew.trust import read_regular
from clew.types import Answer, Candidate, Passage, Query, Record

STEP = 0.05
"""Each place down the list of a shard costs this much."""
LONGEST_SHARD = 16 * 1024 * 1024
MOST_PATHS = 50
"""Paths from shard files that are looked up."""
_TAG = re.compile(r"#([\w/-]+)")
_PATH = re.compile(r"[\w./-]+\.\w+")
HEADING = 0.9
"""A heading names a subject and says nothing of it."""
LONGEST = 8 * 1024 * 1024
"""Characters that are looked at; a second's work to take apart."""
FOLDERS = (".framework/", ".context/memory_bank/")
MODES = ("local", "global")
"""Of the graph."""


def keyword(root: Path, *, collection: str = "") -> Source:
    """Records with all words of the query first; with any of them when too few have all."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        allowed = query.filter.narrowed(own)
        if allowed is None:
            return ()
        return context.store.keyword(
            query.terms, allowed, limit=query.depth, per_record=query.passages
        )

    return FunctionSource(source, outside="", by_terms=True)


def all_words(root: Path) -> Source:
    """Records that have every word of the query; with any word only if none has all. So one common
    word does not drag unrelated records in. It is what Ariadne calls full-text search."""

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        terms, store = query.terms, context.store
        each = tuple(group[:1] for group in terms.words)
        if len(each) > 1:
            strict = replace(terms, phrases=(*terms.phrases, *each))
            if found := store.keyword(strict, query.filter, limit=query.depth):
                return found
        return store.keyword(terms, query.filter, limit=query.depth)

    return FunctionSource(source, outside="", by_terms=True)


def vectors(root: Path, *, collection: str = "") -> Source:
    """Records whose best passage points the same way as the query. Its `floor` is of the way from
    unrelated to identical, by what is known of the model. While vectors are being made, it names
    those whose passage with the query's words has none yet."""
    own = Filter(collection=collection or ())

    def source(query: Query, context: Context) -> Sequence[Candidate] | Answer:
        allowed = query.filter.narrowed(own)
        vector = None if allowed is None else context.query_vector()
        if allowed is None or vector is None:
            return ()
        store, model = context.store, context.model
        found = store.nearest(
            vector,
            allowed,
            model=model,
            limit=query.depth,
            terms=query.terms,
            per_record=query.passages,
        )
        if query.floor:
            none = traits(model).unrelated
            found = [c for c in found if c.score >= none + query.floor * (1.0 - none)]
        if not query.terms or (embedded := store.indexes.coverage(model)) == 1:
            return found
        words = store.keyword(query.terms, allowed, limit=query.depth)
        known = store.vectors.known([c.chunk for c in words if c.chunk is not None], model=model)
        # Of so many words-first records this part would be in the list so far.
        places = {c.id: int(i * embedded) for i, c in enumerate(words) if c.chunk not in known}
        return Answer(found, places=places)

    return FunctionSource(source, outside="")


# ---------------------------------------------------------------------- labels


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


class TagSource(Source):
    """The tags of the store, from front matter, inline `#tags` and the names of folders. As in
    Athena they fall into two shards, A–M and N–Z, each with ten votes, so that a broad tag cannot
    crowd the others out. A workspace may keep shard files beside that (lines such as `#risk: a.md,
    b/c.md`): their paths are looked up in the store, so filters hold for them too."""

    def __init__(self, files: tuple[Path, ...], per_shard: int):
        self.files, self.per_shard = files, per_shard

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
def _shard(file: Path, mtime_ns: int, size: int) -> dict[str, list[str]]:
    """Tag → paths. Read again when the file has changed."""
    try:
        text = read_regular(file, LONGEST_SHARD).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{file.name} is not UTF-8 (byte {error.start}): save it as such"
        ) from None
    except ValueError as error:
        raise SourceError(f"{file.name} cannot be read: {error}; split it") from None
    shard: dict[str, list[str]] = {}
    tag = ""
    for line in text.splitlines():
        if named := _TAG.search(line):
            tag = named[1].casefold()
        for name in lineage(tag):
            shard.setdefault(name, []).extend(_PATH.findall(line))
    return shard


# ---------------------------------------------------------------------- lines


def canonical(root: Path, *, file: str = "CANONICAL.md", best: int = 3) -> Source:
    """Lines with at least two of the query's words (one where it has but one), scored by the share
    of the words they have. Each is a vote for the file's record, with the line as its passage."""
    known: tuple[Hashable, list[Record]] = None, []

    def source(query: Query, context: Context) -> Sequence[Candidate] | Answer:
        nonlocal known
        at, (seen, records) = context.store.changes.edition(), known
        if seen != at:
            names = tuple(f"{root}:{file}" for root in context.store.files.roots())
            records = context.store.select(Filter(ids=names), limit=len(names)) if names else []
            known = at, records
        found = [c for record in records for c in _match_lines(record, query)]
        found.sort(key=lambda c: (-c.score, c.id))  # of equals in a file, the first line
        ranked = found[: min(best, query.depth)]
        if all(len(record.content) <= LONGEST for record in records):
            return ranked
        return Answer(ranked, f"{file} is long: only its first {LONGEST >> 20} MB are looked at")

    return FunctionSource(source, outside="", by_terms=True)


def _match_lines(record: Record, query: Query) -> list[Candidate]:
    words = query.terms.words
    if not words or not query.filter.allows(record):
        return []
    lines, holders = _index_lines(record.content[:LONGEST])
    hits: Counter[int] = Counter()
    for group in words:
        hits.update({number for token in group for number in holders.get(token, ())})
    found: list[Candidate] = []
    for number, count in sorted(hits.items()):
        line = lines[number]
        if count >= min(2, len(words)) and fits(query.terms, line):
            share = count / len(words) * (HEADING if line.lstrip().startswith("#") else 1.0)
            passage = Passage(0, record, line.strip(), (number + 1, number + 1))
            found.append(Candidate(record.id, share, None, passage))
    return found


@lru_cache(maxsize=4)
def _index_lines(text: str) -> tuple[list[str], dict[str, list[int]]]:
    """The lines of a text, and the numbers of those that have each token."""
    lines = text.splitlines()
    holders: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        for token in set(tokens(line)):
            holders.setdefault(token, []).append(number)
    return lines, holders


def framework_docs(root: Path, *, folders: tuple[str, ...] = FOLDERS, best: int = 5) -> Source:
    """The keyword index proposes passages; the share of the query's words in the best line of each
    is its score."""
    below = Filter(within=folders)

    def source(query: Query, context: Context) -> Sequence[Candidate]:
        words, allowed = query.terms.words, query.filter.narrowed(below)
        if not words or allowed is None:
            return ()
        found = context.store.keyword(query.terms, allowed, limit=min(best, query.depth))
        passages = context.store.passages(found)
        scored = [
            candidate._replace(score=_best_line(passage, words))
            for candidate, passage in zip(found, passages, strict=True)
            if passage is not None
        ]
        return sorted(scored, key=lambda c: (-c.score, c.id))

    return FunctionSource(source, outside="", by_terms=True)


def _best_line(passage: Passage, words: Sequence[tuple[str, ...]]) -> float:
    lines = (set(tokens(line)) for line in passage.text.splitlines())
    hits = (sum(not has.isdisjoint(group) for group in words) for has in lines)
    return max(hits, default=0) / len(words)


# ---------------------------------------------------------------------- the knowledge graph


class GraphSource(Source):
    """What the knowledge graph (`clew graph build`) knows and words and vectors cannot: the page
    that is linked from the one the query names, or that shares a rare name with it. A graph that is
    behind the store still serves: what is gone, has changed or may not be seen is left out.

    Records near the entities that the query names, and those of themes that are what was asked;
    with `mode = "global"` those of all themes, as far as they fit. While it is `sure`, it says
    nothing else beside other sources: that is weak, and in a fusion by ranks would count like any
    vote. Opened with the first query, and anew when the graph was built again."""

    def __init__(self, root: Path, *, mode: str = "local", sure: bool = True):
        check_known("a graph source has no mode", MODES, mode, kind=ConfigError)
        self.root, self.mode, self.sure = root, mode, sure

    def __call__(self, query: Query, context: Context) -> Sequence[Candidate]:
        if self.idle(context.store):
            return ()
        with naming_damage(context.store):
            return self._search(query, context)

    def _search(self, query: Query, context: Context) -> Sequence[Candidate]:
        from clew.graph import communities, search  # numpy: only where there is a graph
        from clew.graph.snapshot import GraphView

        if (view := GraphView.open(context.store, query.filter)) is None:
            return ()
        if self.mode == "global":
            vector = context.query_vector()
            found = communities.search_themes(view, query.terms, vector=vector, model=context.model)
            return communities.rank_records(found, limit=query.depth)
        near = search.search_near(
            view, query.text, query.terms, limit=query.depth, sure=self.sure
        ).candidates
        voted = communities.vote_records(
            view, query.terms, vector=context.query_vector, model=context.model
        )
        best: dict[str, Candidate] = {}
        for one in (*near, *voted):
            if one.id not in best or best[one.id].score < one.score:
                best[one.id] = one
        return sorted(best.values(), key=lambda c: (-c.score, c.id))[: query.depth]

    def behind(
        self, query: Query, context: Context, hits: Sequence[str]
    ) -> Mapping[str, Sequence[Candidate]]:
        """The second hop: what the hits that the query names write the title of, or link to."""
        if self.mode == "global" or self.idle(context.store):
            return {}
        from clew.graph.search import find_behind
        from clew.graph.snapshot import GraphView

        with naming_damage(context.store):
            view = GraphView.open(context.store, query.filter)
            return {} if view is None else find_behind(view, query.text, hits)

    def alone(self) -> GraphSource:
        """The same source with all it has."""
        return GraphSource(self.root, mode=self.mode, sure=False)

    def idle(self, store: Store) -> bool:
        """Whether no graph is built: then nobody need ask."""
        return not is_built(store)

    def freshness(self, store: Store) -> str:
        """Another graph may answer otherwise."""
        return file_state(store.folder / STATE) if is_built(store) else ""


graph = GraphSource
