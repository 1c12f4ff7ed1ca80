"""SQLite FTS5 and sqlite-vec, fused with RRF in one SQL statement.

The statement is the one of sqlite-vec's author, with its constant 60 and equal weights:
https://alexgarcia.xyz/blog/2024/sqlite-vec-hybrid-search/index.html
(k is also the depth of each leg).
FTS5 gets the Porter stemmer and, because a question is not FTS5 syntax, the query's words quoted
and joined with OR. sqlite-vec (vec0) scans all vectors.
Scope is a partition key in vec0 and a condition in FTS5.
pysqlite3 is Python's sqlite3 with a current SQLite that may load extensions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sqlite_vec
from job import Job, Query, run
from pysqlite3 import dbapi2 as sqlite3

HYBRID = """
WITH vec_matches AS (
  SELECT rowid, row_number() OVER (ORDER BY distance) AS rank_number
  FROM vec_texts WHERE embedding MATCH :vector AND k = :k {vec_scope}
),
fts_matches AS (
  SELECT rowid, row_number() OVER (ORDER BY rank) AS rank_number
  FROM fts_texts WHERE fts_texts MATCH :words {fts_scope} ORDER BY rank LIMIT :k
)
SELECT texts.id
FROM fts_matches FULL OUTER JOIN vec_matches ON vec_matches.rowid = fts_matches.rowid
JOIN texts ON texts.rowid = coalesce(fts_matches.rowid, vec_matches.rowid)
ORDER BY coalesce(1.0 / (60 + fts_matches.rank_number), 0.0)
       + coalesce(1.0 / (60 + vec_matches.rank_number), 0.0) DESC
LIMIT :k
"""
VECTOR = """
SELECT texts.id FROM vec_texts JOIN texts ON texts.rowid = vec_texts.rowid
WHERE embedding MATCH :vector AND k = :k {vec_scope} ORDER BY distance
"""
_WORD = re.compile(r"\w+")


def build(job: Job) -> dict[str, Callable[[Query], list[str]]]:
    db = sqlite3.connect(job.index / "texts.db")
    db.enable_load_extension(True)
    sqlite_vec.load(db)
    partition = "scope TEXT PARTITION KEY," if job.scoped else ""
    dim = job.vectors.shape[1]
    db.executescript(
        f"""
        CREATE TABLE texts(rowid INTEGER PRIMARY KEY, id TEXT, text TEXT, scope TEXT);
        CREATE VIRTUAL TABLE fts_texts USING fts5(
          text, scope UNINDEXED, content='texts', content_rowid='rowid', tokenize='porter'
        );
        CREATE VIRTUAL TABLE vec_texts USING vec0(
          {partition} embedding float[{dim}] distance_metric=cosine
        );
        """
    )
    row = 0
    for texts, vectors in job.batches(10_000):
        for text, vector in zip(texts, vectors, strict=True):
            row += 1
            stored = (row, text.id, text.text, text.scope)
            db.execute("INSERT INTO texts VALUES (?, ?, ?, ?)", stored)
            if job.scoped:
                values: tuple[Any, ...] = (row, text.scope, vector.tobytes())
            else:
                values = (row, vector.tobytes())
            places = ", ".join("?" * len(values))
            columns = "rowid, scope, embedding" if job.scoped else "rowid, embedding"
            db.execute(f"INSERT INTO vec_texts({columns}) VALUES ({places})", values)
    db.execute("INSERT INTO fts_texts(fts_texts) VALUES ('rebuild')")
    db.commit()

    def ask(statement: str) -> Callable[[Query], list[str]]:
        def answer(query: Query) -> list[str]:
            sql = statement.format(
                vec_scope="AND vec_texts.scope = :scope" if query.scope else "",
                fts_scope="AND scope = :scope" if query.scope else "",
            )
            values = {
                "vector": query.vector.tobytes(),
                "words": " OR ".join(f'"{word}"' for word in _WORD.findall(query.text)) or '""',
                "scope": query.scope,
                "k": job.k,
            }
            return [found for (found,) in db.execute(sql, values)]

        return answer

    job.notes.append(f"SQLite {sqlite3.sqlite_version}")
    return {"hybrid": ask(HYBRID), "vector": ask(VECTOR)}


if __name__ == "__main__":
    run(build, packages=("sqlite-vec", "pysqlite3-binary"))
