"""The share of late interaction: where its coefficients come from, and what they are worth unseen.

    python benchmarks/fit_late.py --rows FOLDER --out docs/benchmarks/late_fit.md

As benchmarks/fit_fusion.py does it, on its training sets and longmemeval, conversations (of which
every second query): each query is asked once (benchmarks/late.py keeps what was found), its list is
fused with 21 shares of late interaction between 0 and 1 (the two legs divide the rest as they would
without), and the coefficients are those for which the share, a logistic function of the signs,
makes the mean nDCG@10 largest. Then each set is left out in turn. `fixed` is the one share best on
the others.

LATE_FADES come before the fit: a share is what they leave of it, in all columns. That of words was
looked for when k8s_docs had shown a loss of .007 without it, so its figures flatter it; where it
begins and ends is from what the training sets gain and lose by coverage, and from what identifiers
are to get. That late interaction loses on code was seen on cosqa's training half; the limits of
that rule lie between what the passages of cosqa have of brackets and what those of the other sets
looked at have (locomo, cranfield and xquad_en among them), without a look at any judgement. It
silences late interaction on all of cosqa, whose row says so.

The penalty is within .001 of the one with which the sets left out have most (second table). The
signs, too, were searched for by hand: those that did best so of about twenty, one more or one less
at a time; `length` in the place of the best score, which was there before, gained .003 on the mean
of five sets left out, which such a search can come by by chance. How the scores of late interaction
are scaled (by their spread, or by a fixed step), how many passages of a record are read (1 or 3),
how deep (60, 100, 200), and with which rows of the query (all, only its words, and those of what
may be meant) was tried on five training sets as well: nothing gained more than .001 on their mean,
single sets moved by up to .005.

--sets names some of the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fit_fusion
from clew.eval import datasets
from clew.ranking import adaptive
from clew.ranking.fusion import LATE, weigh_lists
from clew.search.token_match import HEAD, TokenReader, match_tokens
from fit_fusion import SHARES, Fit, Floats, fit, ndcg
from late import ask

from report import Table, options, publish, say

SETS = {**fit_fusion.SETS, "longmemeval": "test"}
EVERY = {"longmemeval": 2}
SIGNS = tuple(adaptive.LATE_COEFFICIENTS)
PENALTY = 0.003
TRIED = 0.03, 0.01, 0.003, 0.001
SHOWN = 10


def look(name: str, arguments: Any) -> fit_fusion.Seen:
    """A set's queries, asked: signs, and nDCG@10 with each share, of which fades leave a part."""
    whole = datasets.read(arguments.data / name, split=SETS[name])
    dataset, queries = ask(whole, arguments, every=EVERY.get(name, 1))
    signs: list[list[float]] = []
    ranked: list[list[list[str]]] = [[] for _ in SHARES]
    for query in queries:
        played: Any = query
        head, reader = query.votes().fused(HEAD), TokenReader(played, played)
        rows = played.encode_query(query.text)
        late, seen = match_tokens(reader, rows, head, query.lists, query.facts, played, seconds=0)
        signs.append([seen[sign] for sign in SIGNS])
        for of, share in zip(ranked, (SHARES * adaptive.late_fade(seen)).tolist(), strict=True):
            both, told = {**query.lists, LATE: late}, query.facts._replace(late=share)
            fused = weigh_lists(both, told, strategy="adaptive").fused(SHOWN)
            of.append([each.id for each in fused])
    gains = np.stack([ndcg(dataset, of) for of in ranked], axis=1)
    say(f"{name}: {len(signs):,} queries")
    return fit_fusion.Seen(name, dataset, [], np.array(signs), gains, gains)


def choose(sets: Sequence[fit_fusion.Seen]) -> Table:
    rows = []
    for penalty in TRIED:
        found = [
            at_shares(
                seen, fit([o for o in sets if o is not seen], penalty=penalty).shares(seen.signs)
            )
            for seen in sets
        ]
        rows.append((f"{penalty:g}", *(f"{of:.4f}" for of in (*found, np.mean(found)))))
        say(f"penalty {penalty:g}: {np.mean(found):.4f}")
    columns = ("penalty", *(seen.name for seen in sets), "mean")
    return Table("nDCG@10 of a fit without the set", columns, rows)


def at_shares(seen: fit_fusion.Seen, shares: Floats) -> float:
    """The mean nDCG@10 with a share of its own for each query, between the grid's."""
    rows = [np.interp(share, SHARES, row) for share, row in zip(shares, seen.gains, strict=True)]
    return float(np.mean(rows))


def compare(sets: Sequence[fit_fusion.Seen]) -> tuple[Table, Fit]:
    everything = fit(sets, penalty=PENALTY)
    now = Fit(adaptive.LATE_BIAS, np.array(list(adaptive.LATE_COEFFICIENTS.values())))
    rows: list[tuple[Any, ...]] = []
    for seen in sets:
        others = [other for other in sets if other is not seen] or [seen]
        without = fit(others, penalty=PENALTY)
        usual = SHARES[int(np.mean([other.gains.mean(0) for other in others], axis=0).argmax())]
        figures = (
            float(seen.gains[:, 0].mean()),
            at_shares(seen, np.full(len(seen.signs), usual)),
            at_shares(seen, without.shares(seen.signs)),
            at_shares(seen, now.shares(seen.signs)),
            float(seen.gains.max(1).mean()),
        )
        rows.append((seen.name, *figures))
    rows.append(("mean", *np.mean([row[1:] for row in rows], axis=0).tolist()))
    cells = [(name, *(f"{value:.4f}" for value in of)) for name, *of in rows]
    columns = ("hybrid", "fixed, from the others", "without it", "as it is", "best per query")
    found = [f'"{s}": {c:.2f}' for s, c in zip(SIGNS, everything.coefficients, strict=True)]
    note = f"For adaptive.py: LATE_BIAS = {everything.bias:.2f}, {{{', '.join(found)}}}."
    return Table("nDCG@10", ("set", *columns), cells, note), everything


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=fit_fusion.Path, required=True, help="what was found")
    parser.add_argument("--sets", default=",".join(SETS), help="of these, by name")
    parser.add_argument("--stores", type=fit_fusion.Path, help="a ready store for each set")
    arguments = parser.parse_args()
    arguments.rows.mkdir(parents=True, exist_ok=True)
    sets = [look(name, arguments) for name in arguments.sets.split(",")]
    table, found = compare(sets)
    numbers = {"bias": found.bias, "coefficients": found.coefficients.tolist()}
    tables = [table, choose(sets)]
    publish("The share of late interaction", __doc__, tables, numbers, arguments)


if __name__ == "__main__":
    main()
