"""The share of late interaction: where its coefficients come from, and what they are worth unseen.

    python benchmarks/fit_late.py --rows FOLDER --out docs/benchmarks/late_fit.md

As benchmarks/fit_fusion.py does it, on its training sets and longmemeval, conversations (of which
every second query): each query is asked once, its list is fused with 21 shares of late interaction
between 0 and 1 (the two legs divide the rest as they would without), and the coefficients are those
for which the share, a logistic function of the signs, makes the mean gain over no late interaction
largest. Then each set is left out in turn. `fixed` is the one share best on the others.

Two numbers of the fit are chosen by the second table, over sets that were left out: what a lost
point counts against one gained (the first of 1, 1.5 and 2 with which no set loses more than .001)
and the penalty (the best of .01, .003 and .001). So were the signs: of two dozen, alone, in pairs,
threes and beside these five, none gives more than .001, which is less than chance does. What a
query's signs can tell about its best share is little: the fit is about as good as one share for
all, and differs from it where that loses (cosqa). Signs of the passages (length, how much of them
looks like code) were among them; that of code cannot be judged this way, since cosqa alone has any.

LATE_FADES come after the fit; the table has both. They were looked for when k8s_docs had shown a
loss of .007 without them, so its figures flatter them; where they begin and end is from what the
training sets gain and lose by coverage, and from what identifiers are to get.

Token vectors are made once, in an hour or two on two cores, and kept in --rows: of all passages, or
of those that can be in the first hundred of a query. Those of all sets but scifact and cosqa were
made by the same weights on a GPU for the published run, as were the vectors of these sets' passages
(mean cosine .998 to what onnxruntime gives). --sets names some of the sets, --stores a folder with
a ready store for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fit_fusion
from clew.eval import datasets
from clew.models import load_late_interaction
from clew.ranking import adaptive
from clew.ranking.fusion import LATE, weigh_lists
from clew.search.token_match import HEAD, TokenReader, match_tokens
from clew.types import SearchRequest
from fit_fusion import SHARES, Fit, Floats, ndcg, opened
from late import MODEL, FloatRows, Kept, read_rows

from report import Table, options, publish, say

__all__: list[str] = []

SETS = {**fit_fusion.SETS, "longmemeval": "test"}
EVERY = {"longmemeval": 2}
SIGNS = tuple(adaptive.LATE_COEFFICIENTS)
AVERSION, PENALTY = 2.0, 0.001
TRIED = [(a, p) for a in (1.0, 1.5, 2.0) for p in (0.01, 0.003, 0.001)]
SHOWN = 10


def look(name: str, arguments: Any, model: Any) -> fit_fusion.Seen:
    """A set's queries, asked: signs, and nDCG@10 with each share."""
    dataset = datasets.read(arguments.data / name, split=SETS[name])
    dataset = dataset.only(dataset.queries[:: EVERY.get(name, 1)])
    signs: list[list[float]] = []
    ranked: list[list[list[str]]] = [[] for _ in SHARES]
    with opened(dataset, arguments.stores) as engine:
        rows: Any = FloatRows(read_rows(arguments.rows / f"{name}.npz", engine, model))
        reader = TokenReader(Kept(model), rows)  # type: ignore[arg-type]
        for question in dataset.queries:
            request = SearchRequest(
                question.text, limit=SHOWN, group_by="record", filter=question.filter, syntax=False
            )
            lists, facts, _ = engine.collect_lists(request)
            head = weigh_lists(lists, facts, strategy="adaptive").fused(HEAD)
            asked = reader.model.encode_query(question.text, expand=False)
            late, seen = match_tokens(reader, asked, head, lists, facts, engine.store, seconds=0)
            signs.append([seen[sign] for sign in SIGNS])
            for of, share in zip(ranked, SHARES.tolist(), strict=True):
                both, told = {**lists, LATE: late}, facts._replace(late=share)
                fused = weigh_lists(both, told, strategy="adaptive").fused(SHOWN)
                of.append([each.id for each in fused])
    gains = np.stack([ndcg(dataset, of) for of in ranked], axis=1)
    say(f"{name}: {len(signs):,} queries")
    return fit_fusion.Seen(name, dataset, [], np.array(signs), gains, gains)


def fit(sets: Sequence[fit_fusion.Seen], aversion: float, penalty: float) -> Fit:
    """To what is gained and lost in the place of nDCG."""
    made = []
    for seen in sets:
        gap = seen.gains - seen.gains[:, :1]
        worth = np.where(gap > 0, gap, aversion * gap)
        made.append(fit_fusion.Seen(seen.name, seen.dataset, [], seen.signs, worth, worth))
    return fit_fusion.fit(made, penalty=penalty)


def unseen(sets: Sequence[fit_fusion.Seen], aversion: float, penalty: float) -> list[float]:
    """nDCG@10 on each set by a fit on the others."""
    return [
        at_shares(
            seen, fit([o for o in sets if o is not seen], aversion, penalty).shares(seen.signs)
        )
        for seen in sets
    ]


def choose(sets: Sequence[fit_fusion.Seen]) -> Table:
    rows = []
    for aversion, penalty in TRIED:
        found = unseen(sets, aversion, penalty)
        losses = [float(seen.gains[:, 0].mean()) - of for seen, of in zip(sets, found, strict=True)]
        cells = [f"{of:.4f}" for of in (*found, np.mean(found), max(losses))]
        rows.append((f"{aversion:g}", f"{penalty:g}", *cells))
        say(f"aversion {aversion:g}, penalty {penalty:g}: {np.mean(found):.4f}")
    names = [seen.name for seen in sets]
    columns = ("a loss counts", "penalty", *names, "mean", "greatest loss")
    return Table("nDCG@10 of a fit without the set", columns, rows)


def at_shares(seen: fit_fusion.Seen, shares: Floats) -> float:
    """The mean nDCG@10 with a share of its own for each query, between the grid's."""
    rows = [np.interp(share, SHARES, row) for share, row in zip(shares, seen.gains, strict=True)]
    return float(np.mean(rows))


def fade(seen: fit_fusion.Seen) -> Floats:
    first, last = adaptive.LATE_FADES
    covered = seen.signs[:, SIGNS.index("coverage")]
    return np.clip((last - covered) / (last - first), 0.0, 1.0)


def compare(sets: Sequence[fit_fusion.Seen]) -> tuple[Table, Fit]:
    everything = fit(sets, AVERSION, PENALTY)
    now = Fit(adaptive.LATE_BIAS, np.array(list(adaptive.LATE_COEFFICIENTS.values())))
    rows: list[tuple[Any, ...]] = []
    for seen in sets:
        others = [other for other in sets if other is not seen] or [seen]
        without = fit(others, AVERSION, PENALTY)
        usual = SHARES[int(np.mean([other.gains.mean(0) for other in others], axis=0).argmax())]
        shares = without.shares(seen.signs)
        figures = (
            float(seen.gains[:, 0].mean()),
            at_shares(seen, np.full(len(seen.signs), usual)),
            at_shares(seen, shares),
            at_shares(seen, shares * fade(seen)),
            at_shares(seen, now.shares(seen.signs) * fade(seen)),
            float(seen.gains.max(1).mean()),
        )
        rows.append((seen.name, *figures))
    rows.append(("mean", *np.mean([row[1:] for row in rows], axis=0).tolist()))
    cells = [(name, *(f"{value:.4f}" for value in of)) for name, *of in rows]
    columns = ("hybrid", "fixed, from the others", "without it", "the same, faded", "as it is")
    found = [f'"{s}": {c:.2f}' for s, c in zip(SIGNS, everything.coefficients, strict=True)]
    note = f"For adaptive.py: LATE_BIAS = {everything.bias:.2f}, {{{', '.join(found)}}}."
    return Table("nDCG@10", ("set", *columns, "best per query"), cells, note), everything


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=fit_fusion.Path, required=True, help="for token vectors")
    parser.add_argument("--sets", default=",".join(SETS), help="of these, by name")
    parser.add_argument("--stores", type=fit_fusion.Path, help="a ready store for each set")
    arguments = parser.parse_args()
    arguments.rows.mkdir(parents=True, exist_ok=True)
    model = load_late_interaction(MODEL, offline=False)
    sets = [look(name, arguments, model) for name in arguments.sets.split(",")]
    table, found = compare(sets)
    numbers = {"bias": found.bias, "coefficients": found.coefficients.tolist()}
    tables = [table, choose(sets)]
    publish("The share of late interaction", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
