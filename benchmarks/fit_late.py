"""The share of late interaction: where its coefficients come from, and what they are worth unseen.

    python benchmarks/fit_late.py --rows FOLDER --out docs/benchmarks/late_fit.md

As benchmarks/fit_fusion.py does it, on its training sets and longmemeval, conversations: each query
is asked once, its list is fused with 21 shares of late interaction between 0 and 1 (the two legs
divide the rest as they would without), and the coefficients are those for which the share, a
logistic function of the signs, makes the mean gain over no late interaction largest. What a query
loses counts one and a half times: of 1, 1.5, 2 and 3 the first with which no set loses by more than
.001 in a fit without it. Which signs there are was chosen by the mean of the fits without a set,
too (five of a dozen). Then each set is left out in turn. `fixed` is the one share best on the
others.

LATE_FADES come after the fit; the table has both. They were looked for when k8s_docs had shown a
loss of .007 without them, so its figures flatter them; where they begin and end is from what the
training sets gain and lose by coverage, and from what identifiers are to get.

The coefficients in adaptive.py were found with token vectors of the same weights that were made on
a GPU (mean cosine .9988 to those made here) by a draft of this script with 500 steps. Token vectors
are made once, in an hour or two on two cores, and kept in --rows; --sets names some of the sets.
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
SIGNS = tuple(adaptive.LATE_COEFFICIENTS)
AVERSION = 1.5
SHOWN = 10


def look(name: str, arguments: Any, model: Any) -> fit_fusion.Seen:
    """A set's queries, asked: signs, and nDCG@10 with each share."""
    dataset = datasets.read(arguments.data / name, split=SETS[name])
    signs: list[list[float]] = []
    ranked: list[list[list[str]]] = [[] for _ in SHARES]
    with opened(dataset, None) as engine:
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


def averse(seen: fit_fusion.Seen) -> fit_fusion.Seen:
    """With what is gained and lost in the place of nDCG."""
    gap = seen.gains - seen.gains[:, :1]
    worth = np.where(gap > 0, gap, AVERSION * gap)
    return fit_fusion.Seen(seen.name, seen.dataset, [], seen.signs, worth, worth)


def at_shares(seen: fit_fusion.Seen, shares: Floats) -> float:
    """The mean nDCG@10 with a share of its own for each query, between the grid's."""
    rows = [np.interp(share, SHARES, row) for share, row in zip(shares, seen.gains, strict=True)]
    return float(np.mean(rows))


def fade(seen: fit_fusion.Seen) -> Floats:
    first, last = adaptive.LATE_FADES
    covered = seen.signs[:, SIGNS.index("coverage")]
    return np.clip((last - covered) / (last - first), 0.0, 1.0)


def compare(sets: Sequence[fit_fusion.Seen]) -> tuple[Table, Fit]:
    everything = fit_fusion.fit([averse(seen) for seen in sets])
    now = Fit(adaptive.LATE_BIAS, np.array(list(adaptive.LATE_COEFFICIENTS.values())))
    rows: list[tuple[Any, ...]] = []
    for seen in sets:
        others = [other for other in sets if other is not seen] or [seen]
        without = fit_fusion.fit([averse(other) for other in others])
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
    arguments = parser.parse_args()
    arguments.rows.mkdir(parents=True, exist_ok=True)
    model = load_late_interaction(MODEL, offline=False)
    sets = [look(name, arguments, model) for name in arguments.sets.split(",")]
    table, found = compare(sets)
    numbers = {"bias": found.bias, "coefficients": found.coefficients.tolist()}
    publish("The share of late interaction", __doc__, [table], numbers, arguments)


if __name__ == "__main__":
    main()
