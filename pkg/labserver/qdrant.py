"""Qdrant's REST API in a small server for tests: qdrant.py --path DIR --port N [--api-key KEY].

There is no Qdrant server in the package registries. Here the bodies of requests are judged by the models that Qdrant makes
from its OpenAPI (qdrant-client; an unknown field is refused), the work is done by Qdrant's own engine (qdrant-edge, with its
log on disk), and answers and errors have the shapes and words of Qdrant 1.20. It knows what Millweir uses, for one
unnamed vector per point; of the rest it says so. What it cannot show is a cluster, load, and background indexing.
"""

import argparse
import http.server
import json
import os
import re
import shutil
import threading
import time
import traceback
import urllib.parse
import uuid

import pydantic
import qdrant_edge as edge
from qdrant_client.http import models

VERSION = "1.20.0"
OPEN = {"/", "/healthz", "/livez", "/readyz"}  # without the key
PARAMETERS = {"wait": "true|false", "ordering": "weak|medium|strong", "timeout": r"\d+", "consistency": r"\d+|majority|quorum|all"}
INDEX_AFTER = 10_000  # points between two runs of the optimizers, which a real server runs by itself

flags = argparse.ArgumentParser()
flags.add_argument("--path", required=True)
flags.add_argument("--port", type=int, required=True)
flags.add_argument("--api-key", default="")
flags.add_argument("--max-request-mb", type=int, default=32)
args = flags.parse_args()


class Refused(Exception):
    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


def parse(kind, body):
    try:
        return pydantic.TypeAdapter(kind).validate_json(body)
    except pydantic.ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(400, f"Format error in JSON body: {where}: {first['msg']}") from None


def within(name, value, least, most=None):
    if value is not None and (value < least or most is not None and value > most):
        rule = f"must be {least}.0 or larger" if most is None else f"must be from {least} to {most}"
        raise Refused(422, f"Validation error in JSON body: [{name}: value {value} invalid, {rule}]")


def point_id(value):
    if isinstance(value, int) and 0 <= value < 1 << 64:
        return value
    try:
        return uuid.UUID(str(value))
    except ValueError:
        raise Refused(400, f"Format error in JSON body: value {value} is not a valid point ID, "
                      "valid values are either an unsigned integer or a UUID") from None


def shown(value):
    return value if isinstance(value, int) else str(value)


def filter_of(given):
    if given is None:
        return None
    if given.min_should is not None:
        raise Refused(400, "this test server knows no min_should")
    parts = {}
    for name in ("must", "should", "must_not"):
        conditions = getattr(given, name)
        if conditions is not None:
            parts[name] = [condition_of(c) for c in (conditions if isinstance(conditions, list) else [conditions])]
    return edge.Filter(**parts)


def condition_of(c):
    if isinstance(c, models.Filter):
        return filter_of(c)
    if isinstance(c, models.HasIdCondition):
        return edge.HasIdCondition({point_id(i) for i in c.has_id})
    if isinstance(c, models.FieldCondition) and c.model_fields_set == {"key", "match"}:
        match c.match:
            case models.MatchValue():
                return edge.FieldCondition(c.key, match=edge.MatchValue(c.match.value))
            case models.MatchAny():
                return edge.FieldCondition(c.key, match=edge.MatchAny(c.match.any))
            case models.MatchExcept():
                return edge.FieldCondition(c.key, match=edge.MatchExcept(c.match.except_))
    raise Refused(400, f"this test server does not know the condition {c!r}")


def payload_of(selector, default):
    """What edge is asked for: all, nothing, or the names of fields."""
    if selector is None:
        return default
    if isinstance(selector, (bool, list)):
        return selector
    if isinstance(selector, models.PayloadSelectorInclude):
        return selector.include
    raise Refused(400, "this test server knows no exclude")


def plain(value):
    """A model as it is in JSON, without what is not set."""
    return value and value.model_dump(mode="json", exclude_none=True)


class Collection:
    """One collection: a folder with its configuration and a shard of the engine."""

    def __init__(self, folder, config=None):
        self.folder, self.lock, self.operations, self.unindexed = folder, threading.Lock(), 0, 0
        data = os.path.join(folder, "shard")
        if config is None:
            with open(os.path.join(folder, "config.json")) as f:
                self.config = json.load(f)
            self.shard = edge.EdgeShard.load(data)
            return
        self.config = config
        os.makedirs(data)
        vectors = edge.EdgeVectorParams(size=config["vectors"]["size"], distance=edge.Distance.Cosine)
        self.shard = edge.EdgeShard.create(data, edge.EdgeConfig(vectors=vectors))
        with open(os.path.join(folder, "config.json.new"), "w") as f:
            json.dump(config, f)
        os.rename(f.name, os.path.join(folder, "config.json"))

    def update(self, operation, points=0):
        try:
            self.shard.update(operation)
        except Exception as e:  # the engine's only kind
            raise Refused(400, f"Wrong input: {e}") from None
        self.operations += 1
        self.unindexed += points
        if self.unindexed >= INDEX_AFTER:
            self.shard.optimize()
            self.unindexed = 0
        return {"operation_id": self.operations}  # see Store.serve for its status

    def read(self, call, *given):
        try:
            return call(*given)
        except Exception as e:
            raise Refused(400, f"Wrong input: {e}") from None

    def record(self, r):
        out = {"id": shown(r.id), "payload": r.payload, "vector": r.vector}
        return {k: v for k, v in out.items() if v is not None}

    # Each of the following is one request: its body in, its result out.

    def info(self, _):
        info = self.shard.info()
        schema = {}
        for field, index in info.payload_schema.items():
            schema[field] = {"data_type": str(index.data_type).rpartition(".")[2].lower(), "points": index.points}
        return {
            "status": "green", "optimizer_status": "ok", "indexed_vectors_count": info.indexed_vectors_count,
            "points_count": info.points_count, "segments_count": info.segments_count,
            "config": {
                "params": {"vectors": self.config["vectors"], "shard_number": 1, "replication_factor": 1,
                           "write_consistency_factor": 1, "on_disk_payload": True},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000, "max_indexing_threads": 0,
                                "on_disk": False} | self.config["hnsw"],
                "optimizer_config": {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
                                     "indexing_threshold": 10000, "flush_interval_sec": 5},
                "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
            },
            "payload_schema": schema,
        }

    def create_index(self, body):
        asked = parse(models.CreateFieldIndex, body)
        if not isinstance(asked.field_schema, models.PayloadSchemaType):
            raise Refused(400, "this test server knows indexes by the name of their type only")
        kind = getattr(edge.PayloadSchemaType, asked.field_schema.value.capitalize())
        return self.update(edge.UpdateOperation.create_field_index(asked.field_name, kind))

    def upsert(self, body):
        asked = parse(models.PointInsertOperations, body)
        if not isinstance(asked, models.PointsList) or asked.model_fields_set != {"points"}:
            raise Refused(400, "this test server knows lists of points only")
        for p in asked.points:
            if not isinstance(p.vector, list) or p.vector and isinstance(p.vector[0], list):
                raise Refused(400, f"Wrong input: Not existing vector name error: {p.vector}")
        points = [edge.Point(point_id(p.id), p.vector, p.payload or {}) for p in asked.points]
        return self.update(edge.UpdateOperation.upsert_points(points), len(points))

    def retrieve(self, body):
        asked = parse(models.PointRequest, body)
        ids = [point_id(i) for i in asked.ids]
        found = self.read(self.shard.retrieve, ids, payload_of(asked.with_payload, True), asked.with_vector or False)
        return [self.record(r) for r in found]

    def delete(self, body):
        asked = parse(models.PointsSelector, body)
        if isinstance(asked, models.FilterSelector):
            return self.update(edge.UpdateOperation.delete_points_by_filter(filter_of(asked.filter)))
        return self.update(edge.UpdateOperation.delete_points([point_id(i) for i in asked.points]))

    def scroll(self, body):
        asked = parse(models.ScrollRequest, body)
        within("limit", asked.limit, 1)
        if asked.order_by is not None:
            raise Refused(400, "this test server scrolls by id only")
        found, after = self.read(self.shard.scroll, edge.ScrollRequest(
            offset=None if asked.offset is None else point_id(asked.offset), limit=asked.limit or 10,
            filter=filter_of(asked.filter), with_payload=payload_of(asked.with_payload, True),
            with_vector=asked.with_vector or False))
        return {"points": [self.record(r) for r in found], "next_page_offset": None if after is None else shown(after)}

    def count(self, body):
        asked = parse(models.CountRequest, body)
        return {"count": self.read(self.shard.count, edge.CountRequest(filter=filter_of(asked.filter), exact=asked.exact))}

    def query(self, body):
        asked = parse(models.QueryRequest, body)
        within("limit", asked.limit, 1)
        if not isinstance(asked.query, (list, models.NearestQuery)) or asked.prefetch is not None:
            raise Refused(400, "this test server searches by one vector only")
        vector = asked.query if isinstance(asked.query, list) else asked.query.nearest
        params = asked.params or models.SearchParams()
        within("params.hnsw_ef", params.hnsw_ef, 1)
        found = self.read(self.shard.query, edge.QueryRequest(
            query=edge.Query.Nearest(vector, None), limit=asked.limit or 10, offset=asked.offset or 0,
            filter=filter_of(asked.filter), score_threshold=asked.score_threshold,
            with_payload=payload_of(asked.with_payload, False), with_vector=asked.with_vector or False,
            params=edge.SearchParams(hnsw_ef=params.hnsw_ef, exact=params.exact or False)))
        return {"points": [self.record(r) | {"version": r.version, "score": r.score} for r in found]}


OPERATIONS = {
    ("GET", ""): Collection.info, ("PUT", "index"): Collection.create_index, ("PUT", "points"): Collection.upsert,
    ("POST", "points"): Collection.retrieve, ("POST", "points/delete"): Collection.delete,
    ("POST", "points/scroll"): Collection.scroll, ("POST", "points/count"): Collection.count,
    ("POST", "points/query"): Collection.query,
}


class Store:
    """The collections by name."""

    def __init__(self, root):
        self.root, self.lock = os.path.join(root, "collections"), threading.Lock()
        os.makedirs(self.root, exist_ok=True)
        self.collections = {}
        for name in os.listdir(self.root):
            if os.path.exists(os.path.join(self.root, name, "config.json")):
                self.collections[name] = Collection(os.path.join(self.root, name))
            else:  # one that was being made, or removed
                shutil.rmtree(os.path.join(self.root, name))

    def missing(self, name):
        return Refused(404, f"Not found: Collection `{name}` doesn't exist!")

    def create(self, name, body):
        asked = parse(models.CreateCollection, body)
        if not re.fullmatch(r'(?!\.{1,2}$)[^<>:"/\\|?*\0\x1f]{1,255}', name):
            raise Refused(422, "Validation error in path parameters: [name: collection name is not valid]")
        if not isinstance(asked.vectors, models.VectorParams) or asked.vectors.distance != models.Distance.COSINE:
            raise Refused(400, "this test server knows one unnamed vector with the cosine distance only")
        within("vectors.size", asked.vectors.size, 1, 65536)
        with self.lock:
            if name in self.collections:
                raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
            config = {"vectors": plain(asked.vectors), "hnsw": plain(asked.hnsw_config) or {}}
            self.collections[name] = Collection(os.path.join(self.root, name), config)
        return True

    def drop(self, name):
        with self.lock:
            gone = self.collections.pop(name, None)
            if gone is None:
                return False
            os.remove(os.path.join(gone.folder, "config.json"))
        with gone.lock:
            gone.shard.close()
            shutil.rmtree(gone.folder)
        return True

    def serve(self, method, parts, asked, body):
        if method == "GET" and not parts:
            return {"collections": [{"name": name} for name in self.collections]}
        name, operation = parts[0], "/".join(parts[1:])
        if operation == "exists" and method == "GET":
            return {"exists": name in self.collections}
        if operation == "" and method == "PUT":
            return self.create(name, body)
        if operation == "" and method == "DELETE":
            return self.drop(name)
        work = OPERATIONS.get((method, operation))
        if work is None:
            raise Refused(404, "")
        collection = self.collections.get(name)
        if collection is None:
            raise self.missing(name)
        with collection.lock:
            if self.collections.get(name) is not collection:  # it was dropped meanwhile
                raise self.missing(name)
            result = work(collection, body)
        if isinstance(result, dict) and "operation_id" in result:
            result["status"] = "completed" if asked.get("wait") == "true" else "acknowledged"
        return result


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_request(self):
        began = time.time()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urllib.parse.urlsplit(self.path)
        path, asked = address.path, dict(urllib.parse.parse_qsl(address.query))
        given = self.headers.get("api-key") or (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if args.api_key and path not in OPEN and given != args.api_key:
            words = "Invalid API key or JWT" if given else "Must provide an API key or an Authorization bearer token"
            return self.reply(401, words.encode(), "text/plain")
        if path == "/":
            return self.json(200, {"title": "qdrant - vector search engine", "version": VERSION, "commit": "test server"})
        if path in OPEN:
            return self.reply(200, b"all shards are ready", "text/plain")
        parts = [urllib.parse.unquote(p) for p in path.strip("/").split("/")]
        try:
            if len(body) > args.max_request_mb << 20:
                raise Refused(400, f"Payload error: JSON payload ({len(body)} bytes) is larger than allowed "
                              f"(limit: {args.max_request_mb << 20} bytes).")
            if parts[0] != "collections":
                raise Refused(404, "")
            for name, value in asked.items():  # a real server takes no notice of those that it does not know
                if not re.fullmatch(PARAMETERS.get(name, ""), value):
                    raise Refused(400, f"Deserialize error in query parameters: {name}={value}")
            result = store.serve(self.command, parts[1:], asked, body)
            status, answer = 200, {"result": result, "status": "ok"}
        except Refused as e:
            if not str(e):
                return self.reply(404, b"", "text/plain")
            status, answer = e.status, {"status": {"error": str(e)}}
        except Exception as e:
            traceback.print_exc()
            status, answer = 500, {"status": {"error": f"Service internal error: {e}"}}
        answer["time"] = time.time() - began
        self.json(status, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = handle_request

    def json(self, status, value):
        self.reply(status, json.dumps(value).encode(), "application/json")

    def reply(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


store = Store(args.path)
Server(("127.0.0.1", args.port), Handler).serve_forever()
