"""clew serve, watch: the resident process, and the part of it that keeps an index up to date."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from clew.cli import options
from clew.cli.view import clean_lines
from clew.engine import find_root
from clew.errors import needs_extra
from clew.storage import is_url

PORT = 7373


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--db",
    "memories",
    multiple=True,
    type=options.MemoryPath(path_type=Path),
    help="Also serve this memory: a file, made if need be, or a URL. Repeat for several.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any."
)
@options.token_option
@options.token_file
@click.option("--allow-host", "hosts", multiple=True, help="Another name of this server.")
@click.option("--watch/--no-watch", default=True, help="Index files when they change.")
@click.option(
    "--rate",
    default=0.0,
    type=click.FloatRange(min=0),
    metavar="N",
    help="Requests a second of one address at most.",
)
@click.option("--install", is_flag=True, help="Start it at every login instead: a user service.")
@click.option("--uninstall", is_flag=True, help="Take that service away.")
def serve(
    folders: tuple[Path, ...],
    memories: tuple[Path | str, ...],
    host: str,
    port: int,
    token: str | None,
    token_file: Path | None,
    hosts: tuple[str, ...],
    watch: bool,
    rate: float,
    install: bool,
    uninstall: bool,
) -> None:
    """Answer over HTTP, and keep FOLDERS open for it: the nearest store unless some are named.

    The page, /search, /records, /memories and the rest are at http://127.0.0.1:7373. An address
    that other machines can reach needs a token.

    Example: clew serve ~/notes --db ~/memory.db
    """
    token = options.read_token(token, token_file)
    if uninstall:
        _remove_service()
        return
    known = os.environ.get("CLEW_MEMORY")
    dbs = list(memories or ((known,) if known else ()))
    chosen = list(folders)
    if not chosen and (not dbs or find_root() is not None):
        chosen = [options.existing_root(None)]
    with needs_extra("serve", "serving"):
        from clew.cli import command_route
        from clew.serve.guard import Limits
        from clew.serve.http import create_app
        from clew.serve.server import check_address, local_socket, run_server
        from clew.serve.stores import ServedStores
    if install and token and token_file is None:  # it would stand in the unit for long
        print("clew: the service gets no token: name its file with --token-file", file=sys.stderr)
        token = None
    check_address(host, token)
    if install:
        _write_service(chosen, dbs, host, port, token_file, hosts, watch, rate)
        return
    with ExitStack() as opened:
        stores = opened.enter_context(ServedStores())
        for folder in chosen:
            stores.open_folder(folder)
        for db in dbs:
            stores.open_memory(db)
        made = [opened.enter_context(local_socket(s.place)) for s in stores if not is_url(s.place)]
        app = create_app(
            stores,
            token=token,
            hosts=(host, *hosts),
            watch=watch,
            limits=Limits(rate=rate),
            routers=[command_route.routes],
        )
        stores.warm_up()
        run_server(app, host=host, port=port, sockets=[each for each in made if each])


def _write_service(
    folders: Sequence[Path],
    dbs: Sequence[Path | str],
    host: str,
    port: int,
    token_file: Path | None,
    hosts: Sequence[str],
    watch: bool,
    rate: float,
) -> None:
    from clew.serve import service

    said = [str(Path(folder).expanduser().absolute()) for folder in folders]
    for db in dbs:
        said += ["--db", str(db) if is_url(db) else str(Path(db).expanduser().absolute())]
    said += ["--host", host, "--port", str(port)]
    said += ["--token-file", str(token_file.expanduser().absolute())] if token_file else []
    said += [part for name in hosts for part in ("--allow-host", name)]
    said += [] if watch else ["--no-watch"]
    said += ["--rate", f"{rate:g}"] if rate else []
    own = ("CLEW_TOKEN", "CLEW_MEMORY")  # the one is secret, the other an argument by now
    settings = {n: of for n, of in os.environ.items() if n.startswith("CLEW_") and n not in own}
    file = service.service_file()
    left = service.install(service.describe_service(said, settings, Path.home()), file)
    print(f"Wrote {file}.")
    _say_left(left)


def _remove_service() -> None:
    from clew.serve import service

    file = service.service_file()
    left = service.uninstall(file)
    print(f"Removed {file}.")
    _say_left(left)


def _say_left(commands: Sequence[str]) -> None:
    for command in commands:
        print(f"Not done, do it yourself: {command}")


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@options.store_folder
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of what is indexed.")
def watch(folder: Path | None, store: Path | None, quiet: bool) -> None:
    """Keep the index of FOLDER up to date, or the nearest: files are indexed as they change, until
    Ctrl-C.

    What changed meanwhile is indexed first. `clew serve` does the same.
    """
    with needs_extra("serve", "watching"):
        import watchfiles  # noqa: F401

        from clew.serve.jobs import IndexJob
        from clew.serve.stores import ServedStores
    if folder is not None and store is not None:
        raise click.UsageError("the folder is named twice: once is enough")
    with ServedStores() as stores:
        job = IndexJob(stores.open_folder(options.existing_root(folder or store)))
        told = None if quiet else _say_event
        try:
            job.watch(told)
            job.wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)  # past the ^C that terminals show
        finally:
            job.close()


def _say_event(text: str) -> None:
    now = dt.datetime.now().strftime("%H:%M:%S")
    print(f"{now} {clean_lines(text)}", flush=True)
