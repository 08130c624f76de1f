"""Ranks segments as rank_bm25 (PyPI) and SQLite's FTS5 do. JSON {"segments": [text], "queries": [text]} on standard input;
JSON {"rank_bm25": [[index]], "fts5": [[index]]} on standard output, the ten best of each query."""

import json
import re
import sqlite3
import sys

import numpy
from rank_bm25 import BM25Okapi

DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")


def words(text):
    """The words of a text in lower case; of a run without spaces its bigrams. Both engines are given the same."""
    out = []
    for word in re.findall(r"\w+", text.lower()):
        at = 0
        for run in DENSE.finditer(word):
            out += [word[at:run.start()]] if run.start() > at else []
            chars = run.group()
            out += [chars[i:i + 2] for i in range(len(chars) - 1)] or [chars]
            at = run.end()
        out += [word[at:]] if at < len(word) else []
    return out


def main():
    asked = json.load(sys.stdin)
    segments = [words(text) for text in asked["segments"]]
    okapi = BM25Okapi(segments)
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize = 'unicode61')")
    db.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", enumerate(" ".join(s) for s in segments))
    out = {"rank_bm25": [], "fts5": []}
    for query in asked["queries"]:
        terms = words(query)
        scores = okapi.get_scores(terms)
        best = numpy.argsort(-scores, kind="stable")[:10]
        out["rank_bm25"].append([int(i) for i in best if scores[i] > 0])
        match = " OR ".join(f'"{term}"' for term in terms)
        out["fts5"].append([row[0] for row in db.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT 10", (match,))])
    json.dump(out, sys.stdout)


main()
