"""The Postgres store where it is not like any other: the server, its faults, and who sees what."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import clew
from clew.errors import ConfigError, InputError, StoreError
from clew.filter import Filter
from clew.servers import postgres as legs
from clew.servers.postgres import PostgresStore
from clew.storage import locate, postgres_server, postgres_words
from clew.storage.migrate import migrate
from clew.storage.postgres_server import PostgresAddress
from clew.store import EmbeddedStore, open_store
from entries import MODEL, entry, found, ill, near, terms, unit_rows
from postgres_server import new_url, server


@contextlib.contextmanager
def admin(database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server().get_uri(database), autocommit=True) as connection:
        yield connection


def opened(folder: Path, url: str = "", **options: Any) -> PostgresStore:
    place = locate(url or new_url(), folder)
    return PostgresStore(place, folder=folder, **options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PostgresStore]:
    made = opened(tmp_path)
    yield made
    made.close()


@pytest.fixture
def database() -> Iterator[str]:
    """A new one, without anything in it."""
    name = f"d{new_url()[-12:]}"
    with admin() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield name
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


# ---------------------------------------------------------------------- URLs, and what is there


def test_what_is_for_clew_in_a_url_is_not_told_to_the_server() -> None:
    said = PostgresAddress.of(
        "postgresql://ana:x@h:1/d?schema=notes&pool=3&prepare=off&sslmode=require"
    )
    assert (said.schema, said.pool, said.prepare) == ("notes", 3, False)
    assert "sslmode=require" in said.conninfo and "schema" not in said.conninfo
    assert PostgresAddress.of("postgresql://h/d").prepare
    assert not PostgresAddress.of("postgresql://h:6543/d").prepare  # a pooler of transactions
    for wrong in ("schema=a-b", "schema=1", "pool=0", "pool=x", "prepare=maybe"):
        with pytest.raises(ConfigError):
            PostgresAddress.of(f"postgresql://h/d?{wrong}")


def test_who_only_reads_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        opened(tmp_path, create=False)


def test_a_wrong_password_is_said_and_never_shown(tmp_path: Path) -> None:
    rules = server().pgdata / "pg_hba.conf"
    before = rules.read_text("utf-8")
    rules.write_text("local all locked scram-sha-256\n" + before, "utf-8")
    try:
        with admin() as connection:
            connection.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
            connection.execute("SELECT pg_reload_conf()")
            url = new_url().replace("postgres:@", "locked:hush@")
            with pytest.raises(StoreError, match="check user and password") as refused:
                opened(tmp_path, url)
            assert "hush" not in str(refused.value)
            connection.execute("DROP ROLE locked")
    finally:
        rules.write_text(before, "utf-8")


def test_a_server_that_is_not_there_and_a_database_that_is_not_are_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is the server running"):
        opened(tmp_path, f"postgresql:///x?host={tmp_path}")
    with pytest.raises(StoreError, match="CREATE DATABASE"):
        opened(tmp_path, new_url().replace("/postgres?", "/nowhere?"))


def test_a_database_without_pgvector_or_with_an_old_one_is_told_what_to_run(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url().replace("/postgres?", f"/{database}?")
    with pytest.raises(StoreError, match="CREATE EXTENSION vector;"):
        opened(tmp_path, url, create=False)
    opened(tmp_path, url).close()  # who may makes it
    with admin(database) as connection:
        query = "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'"
        connection.execute(query)
        with pytest.raises(StoreError, match="ALTER EXTENSION vector UPDATE;"):
            opened(tmp_path, url)
    monkeypatch.setattr(postgres_server, "OLDEST_SERVER", 99)
    with pytest.raises(StoreError, match="needs 99 or later"):
        opened(tmp_path, url)


def test_tables_of_another_program_and_of_a_newer_clew_are_left_alone(tmp_path: Path) -> None:
    url = new_url()
    schema = PostgresAddress.of(url).schema
    with admin() as connection:
        connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs (x int)")
        with pytest.raises(StoreError, match="another program's"):
            opened(tmp_path, url)
        url = new_url()
        opened(tmp_path, url).close()
        query = (
            f"UPDATE {PostgresAddress.of(url).schema}.meta SET value = '99' WHERE key = 'format'"
        )
        connection.execute(query)
        with pytest.raises(StoreError, match="newer Clew"):
            opened(tmp_path, url)


def test_what_postgres_cannot_keep_is_an_error_of_ours(store: PostgresStore) -> None:
    long = "".join(chr(0x4E00 + i * 7 % 20_000) for i in range(4_000))
    with pytest.raises(InputError, match="2,600 bytes"):
        store.put([entry(long, "zebra")])
    with pytest.raises(InputError, match="16,000 dimensions"):
        store.put([entry("a", "zebra", vectors=np.ones((1, 16_001)))], model=MODEL)
    store.put([entry("a", "\ue000 zebra\0walrus \ue000\ue001", tags=('a"b\\c', "{x}"))])
    (record,) = store.get(["a"])
    assert record.content == "\ue000 zebra\0walrus \ue000\ue001"
    assert set(record.tags) == {'a"b\\c', "{x}"}


# ---------------------------------------------------------------------- vectors by an index


@pytest.mark.parametrize("dim", [16, 2_100])
def test_a_rare_filter_leaves_as_many_as_there_are_also_by_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dim: int
) -> None:
    """Past 2,000 dimensions the index is of half precision, and the scores are not."""
    monkeypatch.setattr(legs, "INDEXED_FROM", 100)
    monkeypatch.setattr(legs, "FEW", 5)
    count = 600 if dim == 16 else 150
    rows = unit_rows(count, dim)
    with contextlib.closing(opened(tmp_path)) as store:
        store.put(
            [
                entry(f"r{i:03}", "x", vectors=rows[i : i + 1], tags=("t",) if i % 20 == 7 else ())
                for i in range(count)
            ],
            model=MODEL,
        )
        store.indexes.refresh(optimise=True)
        assert store.stats(model=MODEL)["vectors"] == {"stage": "hnsw", "rows": count}
        query = rows[3] + 0.2 * rows[4]
        exact = [f"r{i:03}" for i in np.argsort(-(rows @ query))]
        assert near(store, query, limit=5) == exact[:5]
        rare = [name for name in exact if int(name[1:]) % 20 == 7]
        assert near(store, query, limit=6, tags="t") == rare[:6]
        (best,) = store.nearest(query, Filter(), model=MODEL, limit=1)
        assert best.score == pytest.approx(float(rows[3] @ query), rel=1e-5)
        store.put([entry("late", "x", vectors=[2 * query])], model=MODEL)
        assert near(store, query, limit=1) == ["late"]
        assert ill(store) == []


def test_a_search_reads_what_it_gives_and_not_the_whole_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the filter that every search has, with a word that every passage has."""
    monkeypatch.setattr(legs, "INDEXED_FROM", 100)
    monkeypatch.setattr(legs, "FEW", 5)
    count = 3_000
    rows = unit_rows(count, 16)
    with contextlib.closing(opened(tmp_path, new_url(pool="1"))) as store:
        store.put(
            [
                entry(f"r{i:04}", f"common w{i % 900}{' x' * (i % 39)}", vectors=rows[i : i + 1])
                for i in range(count)
            ],
            model=MODEL,
        )
        store.indexes.refresh(optimise=True)
        scope = Filter(not_domain=["personal"])
        assert store.count(scope) == count

        def rows_read() -> int:
            store._tables.execute("SELECT pg_stat_force_next_flush()")
            query = """SELECT SUM(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
                       FROM pg_stat_user_tables WHERE schemaname = ?"""
            return int(store._tables.execute(query, (store._db.address.schema,))[0][0])

        for ask in (
            lambda: near(store, rows[7], limit=10, not_domain=["personal"]),
            lambda: [c.id for c in store.keyword(terms("common w7 w8"), scope, limit=10)],
        ):
            ask()  # what is asked once for all searches
            before = rows_read()
            assert ask()[0] == "r0007"
            assert rows_read() - before < count / 2


# ---------------------------------------------------------------------- words by their lists


def test_lists_of_words_score_as_passages_do_and_are_folded_without_those_that_are_gone(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = [f"w{i}" for i in range(50)]
    draw = random.Random(1)
    for number in range(30):
        words = draw.choices(vocabulary, k=60)
        name = f"r{number % 12:02}"
        store.put([entry(name, [" ".join(words), " ".join(words[:9])], title=words[0])])
    store.put([entry("long", "w1 " * 300 + "w2"), entry("title", "nothing", title="w3")])
    store.delete(["r03"])

    def ask() -> list[Any]:
        return [
            store.keyword(terms(query), scope, limit=9, per_record=2)
            for query in ("w1 w2 w3 w4 w5", "w1 nowhere", "w3 w7 w1 -w9", "nowhere", "it's\\ w1?")
            for scope in (Filter(), Filter(ids=["r01", "r02", "r05", "title"]))
        ]

    def count() -> tuple[int, int]:
        query = "SELECT COUNT(*), SUM(cardinality(cids))::bigint FROM terms"
        rows, listed = store._tables.execute(query)[0]
        return rows, listed

    before, many = ask(), count()
    assert before[0] and all(c.id != "r03" for found in before for c in found)
    store.indexes.refresh(optimise=True)
    assert ask() == before
    assert count()[0] < many[0] / 10 and count()[1] < many[1]
    query = """SELECT COUNT(*) FROM terms WHERE cardinality(cids) < greatest(body, title)
               AND token NOT IN ('', ' ')"""
    assert store._tables.execute(query)[0][0] == 0
    monkeypatch.setattr(postgres_words.WordQuery, "listed", False)
    assert ask() == before


# ---------------------------------------------------------------------- faults


def cut_connections(schema_of: PostgresStore) -> None:
    """As a network that fails, or an administrator, does."""
    with admin() as connection:
        connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'clew' AND pid <> pg_backend_pid()"""
        )


def test_a_connection_lost_between_two_calls_is_not_noticed(store: PostgresStore) -> None:
    store.put([entry("a", "zebra")])
    cut_connections(store)
    assert found(store, "zebra") == ["a"]
    cut_connections(store)
    store.put([entry("b", "zebra")])
    assert found(store, "zebra") == ["a", "b"]


def test_a_connection_lost_within_a_block_leaves_nothing_of_it(store: PostgresStore) -> None:
    with pytest.raises(StoreError, match="nothing is kept: try again"), store.atomic():
        store.put([entry("a", "zebra")])
        cut_connections(store)
        store.put([entry("b", "zebra")])
    assert store.count(Filter()) == 0
    store.put([entry("b", "zebra")])
    assert found(store, "zebra") == ["b"]


def test_a_write_that_loses_its_connection_is_done_again_by_itself(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clew.storage import postgres

    real, lost = postgres.index_words, []

    def index(*args: Any) -> None:
        if not lost:
            lost.append(True)
            cut_connections(store)
        real(*args)

    monkeypatch.setattr(postgres, "index_words", index)
    assert store.put([entry("a", "zebra")]) == ["created"]
    assert lost and found(store, "zebra") == ["a"]


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_is_asked_after(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    real, asked = psycopg.Connection.execute, []

    def execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if query == "COMMIT" and not asked:
            asked.append(real(self, "COMMIT" if done else "ROLLBACK"))
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return real(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", execute)
    assert store.put_new([entry("a", "zebra")]) == [("created", "a")]  # once, either way
    assert asked and found(store, "zebra") == ["a"]


def test_a_server_that_restarts_during_a_load_loses_nothing_that_was_acknowledged(
    store: PostgresStore,
) -> None:
    acknowledged: list[str] = []
    begun = threading.Event()

    def load() -> None:
        for i in range(40):
            names = [f"r{i:02}-{j}" for j in range(5)]
            store.put(
                [entry(name, f"zebra {name}", vectors=[[1, i]]) for name in names], model=MODEL
            )
            acknowledged.extend(names)
            if i == 5:
                begun.set()

    thread = threading.Thread(target=load)
    thread.start()
    assert begun.wait(60)
    running = server()
    command = [str(running.bin_path / "pg_ctl"), "-D", str(running.pgdata), "-m", "immediate", "-w"]
    options = ["-o", f'-h "" -k {running.pgdata}', "-l", str(running.log), "restart"]
    user = {"user": running.system_user} if running.system_user else {}
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, **user)
    thread.join(120)
    assert not thread.is_alive() and len(acknowledged) == 200
    assert sorted(found(store, "zebra")) == sorted(near(store, [1, 0])) == sorted(acknowledged)
    assert ill(store) == []


def test_a_pool_whose_connections_are_all_in_use_says_so_and_goes_on(tmp_path: Path) -> None:
    with contextlib.closing(opened(tmp_path, new_url(pool="1"), busy_seconds=2.0)) as store:
        store.put([entry("a", "zebra")])
        said: list[str] = []

        def read() -> None:
            try:
                found(store, "zebra")
            except StoreError as error:
                said.append(str(error))

        with store._db.snapshot() as db:
            db.execute("SELECT 1")
            thread = threading.Thread(target=read)
            thread.start()
            thread.join(30)
        assert len(said) == 1 and "add ?pool=N" in said[0]
        assert found(store, "zebra") == ["a"]


def test_who_writes_elsewhere_is_waited_for_and_then_named(tmp_path: Path) -> None:
    url = new_url()
    one, other = opened(tmp_path, url), opened(tmp_path, url, busy_seconds=2.0)
    with contextlib.closing(one), contextlib.closing(other):
        with one.atomic():
            one.put([entry("a", "zebra")])
            with pytest.raises(StoreError, match="another process is writing"):
                other.put([entry("b", "zebra")])
        other.put([entry("b", "zebra")])
        assert found(one, "zebra") == ["a", "b"]


# ---------------------------------------------------------------------- who sees what


def test_a_role_that_is_bound_to_a_namespace_sees_that_one_alone(tmp_path: Path) -> None:
    url = new_url()
    schema = PostgresAddress.of(url).schema
    with contextlib.closing(opened(tmp_path, url)) as store, admin() as connection:
        store.put(
            [
                entry(f"{who}{i}", f"zebra of {who}", collection=who, tags=(who,), vectors=[[1, i]])
                for who in ("ana", "bo", "cy")
                for i in range(3)
            ],
            model=MODEL,
        )
        store.notes["secret"] = "of all"
        connection.execute(f"CREATE ROLE {schema} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
        for namespace in ("ana", "cy"):
            connection.execute(f"INSERT INTO {schema}.members VALUES ('{schema}', '{namespace}')")
        hers = url.replace("postgres:@", f"{schema}@")
        with contextlib.closing(opened(tmp_path / "hers", hers, create=False)) as bound:
            seen = ["ana0", "ana1", "ana2", "cy0", "cy1", "cy2"]
            assert sorted(found(bound, "zebra")) == sorted(near(bound, [1, 0])) == seen
            assert found(bound, "bo") == [] and bound.get(["bo0"]) == []
            assert bound.count(Filter()) == 6 and bound.counts("tag", Filter()) == {
                "ana": 3,
                "cy": 3,
            }
            assert bound.vectors.of(["bo0"]) == {} and dict(bound.notes) == {}
            with pytest.raises(StoreError, match="may only read"):
                bound.put([entry("x", "zebra", collection="ana")])
        narrowed = f"{hers}&options=-c%20clew.namespace%3Dcy"
        with contextlib.closing(opened(tmp_path / "hers", narrowed, create=False)) as bound:
            assert sorted(found(bound, "zebra")) == ["cy0", "cy1", "cy2"]
        with psycopg.connect(server().get_uri()) as her:
            her.execute(f"SET ROLE {schema}")
            for table in ("records", "chunks", "vectors", "labels", "words", "texts", "tags"):
                (count,) = her.execute(f"SELECT COUNT(*) FROM {schema}.{table}").fetchone() or (0,)
                assert count in (6, 0), table
            assert her.execute(f"SELECT COUNT(*) FROM {schema}.terms").fetchone() == (0,)
        connection.execute(f"DROP OWNED BY {schema}; DROP ROLE {schema}")


# ---------------------------------------------------------------------- all of Clew on it


def test_a_store_is_copied_into_postgres_and_back_with_nothing_lost(tmp_path: Path) -> None:
    first = EmbeddedStore(tmp_path / "first")
    between, last = opened(tmp_path / "between"), EmbeddedStore(tmp_path / "last")
    with contextlib.closing(first), contextlib.closing(between), contextlib.closing(last):
        first.put(
            [
                entry(
                    f"r{i:02}",
                    [f"zebra {i}", f"\0 walrus {i} 京都"],
                    vectors=unit_rows(2, seed=i),
                    tags=(f"t{i % 3}", "a/b"),
                    links=("r00",),
                    title=f"Number {i}",
                    path=f"notes/{i}.md",
                    metadata={"n": i, "x": 0.5, "big": 2**62, "list": ["a", "b"]},
                )
                for i in range(60)
            ],
            model=MODEL,
        )
        first.lifecycle.end(["r03"], at=5.0, reason="forgotten", successor="r04")
        first.lifecycle.count_accesses({"r05": 3}, at=7.0)
        first.files.set_root("notes", "/somewhere")
        first.notes["a"] = "1"
        assert migrate(first, between, origin="first").well
        assert migrate(between, last, origin="between").well
        assert first.select(Filter(), limit=99) == last.select(Filter(), limit=99)
        assert found(between, "walrus 京都", limit=5) == found(first, "walrus 京都", limit=5)


def test_a_folder_and_a_memory_live_on_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in (("a", "About anchors and chains"), ("b", "Anchors of [[a]] rust")):
        (notes / f"{name}.md").write_text(f"# {name}\n\n{text}.\n", "utf-8")
    url = new_url()
    with clew.open(notes, store=url, model="none") as engine:
        engine.index()
        assert sorted(hit.path or "" for hit in engine.search("anchor")) == ["a.md", "b.md"]
        assert all(finding["ok"] for finding in engine.doctor())
        assert engine.status()["records"] == 2 and engine.index().unchanged == 2
        engine.graph.build()
        assert engine.status()["graph"]["built"]
        manifest = engine.backup(tmp_path / "notes.clew")
        assert manifest["database"] == "sqlite" and manifest["counts"]["records"] == 2
    clew.verify_backup(tmp_path / "notes.clew")
    with pytest.raises(InputError, match="restored as a file"):
        clew.restore_backup(tmp_path / "notes.clew", db=url)
    memories = new_url()
    with clew.Memory(memories, embedding_dim=2) as memory:
        first = memory.remember("the sauna opens at five", embedding=[1, 0], tags="house")
        memory.supersede(first["id"], "the sauna opens at six", embedding=[1, 0])
    with clew.Memory(memories, embedding_dim=2, create=False) as memory:
        assert [m["content"] for m in memory.recall("sauna", k=1)] == ["the sauna opens at six"]
        assert "postgresql://" in memory.stats()["path"]
    (made,) = (tmp_path / "cache" / "clew" / "stores").iterdir()
    assert made.is_dir()


def test_a_url_opens_it_for_whoever_asks_for_a_store(tmp_path: Path) -> None:
    url = new_url()
    with contextlib.closing(open_store(url, base=tmp_path)) as store:
        store.put([entry("a", "zebra")])
    with contextlib.closing(open_store(url, base=tmp_path, create=False)) as store:
        assert found(store, "zebra") == ["a"]
