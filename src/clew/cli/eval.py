"""clew eval: how well a search finds what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clew.cli import render
from clew.cli.options import as_json, open_existing, pairs, store_folder
from clew.errors import InputError

__all__ = ["eval_"]


class _OrRun(click.Group):
    """`clew eval DATASET` means `clew eval run DATASET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_OrRun)
def eval_() -> None:
    """Measure how well a search finds what it should.

    \b
    clew eval DATASET   is short for clew eval run DATASET (clew eval run --help: all options)
    clew eval           the bundled cases, every scorer
    clew eval init      a template of queries about your own documents
    """


@eval_.command()
@click.argument("dataset", required=False, type=click.Path(path_type=Path))
@click.option("--modes", help="Of keyword, vector, hybrid, rerank.  [default: the first three]")
@click.option(
    "--mode",
    "scorer",
    type=click.Choice(["token-only", "vector", "hybrid"]),
    help="Without DATASET: the bundled cases with this scorer; hybrid shows all three.",
)
@store_folder
@click.option("--split", default="test", show_default=True, help="Or train, dev: for tuning.")
@click.option("--limit-queries", type=click.IntRange(min=1), help="The first N only.")
@click.option("--model", help="Embedder; see clew models list.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Any setting.")
@click.option("--literal", is_flag=True, help="Take quotes, -word and tag: as plain words.")
@click.option("--skip-bad", is_flag=True, help="Leave flawed rows out instead of stopping.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run files.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Bars as a picture.")
@click.option("--verbose", "-v", is_flag=True, help="List each bundled case that failed.")
@as_json
def run(
    dataset: Path | None,
    modes: str | None,
    scorer: str | None,
    model: str | None,
    changes: tuple[str, ...],
    verbose: bool,
    json: bool,
    **options: Any,
) -> None:
    """Ask the queries of DATASET in each mode and compare with its judgements.

    DATASET is a folder in BEIR's form. It is indexed once; the index is kept in the cache. With
    --store, or without a corpus file, the judgements are about a store that is there already.

    Without DATASET the bundled hand-made cases are run: a matrix of scorer and category.

    Example: clew eval ~/data/scifact --modes keyword,hybrid --plot scifact.png
    """
    settings = pairs(changes, "--set")
    if model:
        settings["model"] = model
    if dataset is None:
        refused = [f"--{name.replace('_', '-')}" for name in _DATASET_ONLY if options[name]]
        if modes or refused:
            raise InputError(f"{', '.join(refused or ['--modes'])} needs a DATASET")
        _run_cases(scorer, settings, verbose=verbose, json=json)
    elif scorer:
        raise InputError("--mode is for the bundled cases: with a DATASET write --modes")
    else:
        _run_dataset(dataset, modes, settings, json=json, **options)


_DATASET_ONLY = ("store", "limit_queries", "literal", "skip_bad", "out", "plot")


def _run_dataset(
    folder: Path,
    modes: str | None,
    settings: dict[str, Any],
    *,
    store: Path | None,
    split: str,
    limit_queries: int | None,
    literal: bool,
    skip_bad: bool,
    out: Path | None,
    plot: Path | None,
    json: bool,
) -> None:
    from clew.eval import datasets, harness, metrics, report
    from clew.query.parse import literal as as_words

    wanted = harness.check_modes(modes.split(",") if modes is not None else harness.DEFAULT_MODES)
    for needed in ("ir_measures", "scipy.stats", *(("matplotlib",) if plot else ())):
        metrics.require(needed)  # before an hour of indexing, not after it
    dataset = datasets.read(folder, split=split, limit=limit_queries, skip_bad=skip_bad)
    vectors = any(harness.MODES[mode]["mode"] != "keyword" for mode in wanted)
    with render.progress(shown=not json) as progress:
        own = dataset.records is None or (
            store is not None and (store / ".clew").exists() and not harness.made_here(store)
        )
        if own:
            engine = open_existing(store, **settings)
        else:
            engine, no_vectors = harness.open_indexed(
                dataset, folder=store, vectors=vectors, overrides=settings, progress=progress
            )
        with engine:
            if own:
                no_vectors = harness.check_store(dataset, engine)
            runs, unavailable = [], {}
            for mode in wanted:
                if why := harness.why_unavailable(mode, no_vectors):
                    unavailable[mode] = why
                    continue
                prepare = as_words if literal else str
                runs.append(
                    harness.run_mode(
                        engine, dataset.queries, mode, prepare=prepare, progress=progress
                    )
                )
            model = engine.config.model
            place = engine.root
    summary = report.summarise(
        dataset, runs, unavailable=unavailable, model=model, store=str(place)
    )
    runs_in = out or (harness.cache_folder() / "runs" if own or place is None else place / "runs")
    suffix = "" if split == "test" else f"-{split}"
    for each in runs:
        file = runs_in / f"{dataset.name}{suffix}.{each.mode}.run"
        report.write_run(each, file)
        summary["modes"][each.mode]["run"] = str(file)
    if plot:
        report.plot(summary, plot)
    if json:
        render.print_json(summary)
    else:
        report.show(summary, render.console())


def _run_cases(
    scorer: str | None, settings: dict[str, Any], *, verbose: bool, json: bool
) -> None:
    raise NotImplementedError
