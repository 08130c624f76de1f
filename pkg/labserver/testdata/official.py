"""official.py URL KEY: Qdrant's own client, over REST, on a server that is empty."""

import sys
import uuid
import warnings

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

warnings.simplefilter("error", DeprecationWarning)
warnings.filterwarnings("ignore", message="Api key is used with an insecure connection.")
url, key = sys.argv[1:]
client = QdrantClient(url=url, api_key=key, prefer_grpc=False)


def refused(status, words, call):
    try:
        call()
    except UnexpectedResponse as e:
        assert e.status_code == status, e
        assert words in e.content.decode(), e.content
        return
    raise AssertionError(f"it was not refused with {status}: {words}")


assert client.info().version == "1.20.0"
assert not client.collection_exists("kb-a") and not client.delete_collection("kb-a")
cosine = models.VectorParams(size=4, distance=models.Distance.COSINE)
assert client.create_collection("kb-a", vectors_config=cosine)
done = models.UpdateStatus.COMPLETED
assert client.create_payload_index("kb-a", "birth", models.PayloadSchemaType.KEYWORD, wait=True).status == done

ids = sorted(str(uuid.uuid4()) for _ in range(25))
points = [models.PointStruct(id=i, vector=[2, n, 0, 0.5], payload={"id": f"r{n}", "birth": f"v{n % 2}"}) for n, i in enumerate(ids)]
assert client.upsert("kb-a", points, wait=True, ordering=models.WriteOrdering.MEDIUM).status == done
assert client.upsert("kb-a", points, wait=False).status == models.UpdateStatus.ACKNOWLEDGED

page, after = client.scroll("kb-a", limit=10, with_payload=["id"])
assert [p.id for p in page] == ids[:10] and after == ids[10], (page, after)
assert page[0].payload == {"id": "r0"} and page[0].vector is None
page, after = client.scroll("kb-a", limit=20, offset=after, with_payload=False)
assert [p.id for p in page] == ids[10:] and after is None

assert client.count("kb-a", exact=True).count == 25
v1 = models.Filter(must=[models.FieldCondition(key="birth", match=models.MatchAny(any=["v1", "v7"]))])
assert client.count("kb-a", count_filter=v1).count == 12

for params in (models.SearchParams(hnsw_ef=400), models.SearchParams(exact=True)):
    found = client.query_points("kb-a", query=[4.0, 6, 0, 1], limit=3, query_filter=v1, with_payload=["id"], search_params=params).points
    assert [p.payload["id"] for p in found][0] == "r3" and abs(found[0].score - 1) < 1e-6, found
    assert len(found) == 3 and found[0].score >= found[1].score >= found[2].score

whole = client.retrieve("kb-a", ids[:2] + [str(uuid.uuid4())], with_payload=True, with_vectors=True)
assert len(whole) == 2 and abs(sum(x * x for x in whole[0].vector) - 1) < 1e-6, "vectors are kept at length 1"

assert client.delete("kb-a", models.PointIdsList(points=ids[:1]), wait=True).status == done
assert client.delete("kb-a", models.FilterSelector(filter=v1), wait=True).status == done
info = client.get_collection("kb-a")
assert info.points_count == 12 and info.config.params.vectors == cosine and info.status == models.CollectionStatus.GREEN
assert info.payload_schema["birth"].data_type == models.PayloadSchemaType.KEYWORD
assert [c.name for c in client.get_collections().collections] == ["kb-a"]

refused(404, "Collection `kb-b` doesn't exist!", lambda: client.count("kb-b"))
refused(409, "already exists", lambda: client.create_collection("kb-a", vectors_config=cosine))
refused(400, "Vector dimension error: expected dim: 4, got 2", lambda: client.upsert("kb-a", [models.PointStruct(id=1, vector=[1.0, 0])]))
refused(400, "not a valid point ID", lambda: client.upsert("kb-a", [models.PointStruct(id="row 1", vector=[1.0, 0, 0, 0])]))
refused(400, "is larger than allowed", lambda: client.upsert("kb-a", [models.PointStruct(id=1, vector=[1.0, 0, 0, 0], payload={"x": "y" * (1 << 20)})]))
refused(422, "Validation error", lambda: client.scroll("kb-a", limit=0))
refused(401, "Invalid API key", lambda: QdrantClient(url=url, api_key="other", prefer_grpc=False, check_compatibility=False).get_collections())
refused(401, "Must provide an API key", lambda: QdrantClient(url=url, prefer_grpc=False, check_compatibility=False).get_collections())
assert client.delete_collection("kb-a") and not client.collection_exists("kb-a")
print("all parsed")
