"""FastStream answers the phases of ../../rival/serve.go: one line in, one line of JSON out.

Its subscriber reads a Redis stream for a consumer group in batches, which is the fastest way that it documents, and
acknowledges after the handler. Publishing has no batches for streams: so many clients publish at a time.
"""

import asyncio
import json
import math
import os
import sys
import time

import redis.asyncio
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub

TASKS = int(os.environ.get("PEERS_TASKS", 1))
WORKERS = int(os.environ.get("PEERS_WORKERS", 1))
RATE = int(os.environ.get("PEERS_RATE", 1))
SECONDS = int(os.environ.get("PEERS_SECONDS", 1))
HOST, PORT = os.environ.get("PEERS_REDIS", "127.0.0.1:6379").split(":")
STREAM, GROUP = "t", "g"
BATCH = 256  # entries of one read, as streammq's

looks = redis.asyncio.Redis(host=HOST, port=int(PORT))


def payload(due_ns: int = 0) -> str:
    return f"{due_ns:016x}" + "x" * 184


class Work:
    """A started broker that counts what its handler was given, and how late."""

    def __init__(self) -> None:
        self.seen = 0
        self.late: list[float] = []
        self.broker = RedisBroker(f"redis://{HOST}:{PORT}", logger=None)
        sub = StreamSub(STREAM, group=GROUP, consumer="c", batch=True, max_records=BATCH, polling_interval=10)

        @self.broker.subscriber(stream=sub, ack_policy=AckPolicy.ACK)
        async def handle(texts: list[str]) -> None:
            for text in texts:
                self.seen += 1
                due = int(text[:16], 16)
                if due:
                    self.late.append((time.time_ns() - due) / 1e6)

    async def until(self, n: int) -> None:
        """All of n were seen, and the group has nothing left by Redis' own record."""
        while True:
            group = (await looks.xinfo_groups(STREAM))[0]
            if self.seen >= n and not group["pending"] and not group.get("lag"):
                return
            await asyncio.sleep(0.005)


async def prepare() -> dict:
    await looks.flushall()
    await looks.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    return {}


async def submit() -> dict:
    broker = RedisBroker(f"redis://{HOST}:{PORT}", logger=None)
    await broker.connect()
    left = iter(range(TASKS))

    async def client() -> None:
        for _ in left:
            await broker.publish(payload(), stream=STREAM)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(WORKERS)))
    seconds = time.perf_counter() - began
    await broker.stop()
    return {"tasks": TASKS, "seconds": seconds}


async def drain() -> dict:
    work = Work()
    began = time.perf_counter()
    await work.broker.start()
    try:
        await asyncio.wait_for(work.until(TASKS), 180)
        seconds = time.perf_counter() - began
    finally:
        await work.broker.stop()
    return {"tasks": TASKS, "seconds": seconds, "note": f"one subscriber, batches of {BATCH}"}


async def latency() -> dict:
    work = Work()
    await work.broker.start()
    await asyncio.sleep(0.3)
    total, start, pending = RATE * (SECONDS + 1), time.time(), set()
    for i in range(total):
        due = start + i / RATE
        wait = due - time.time()
        if wait > 0:
            await asyncio.sleep(wait)
        sent = asyncio.ensure_future(work.broker.publish(payload(int(due * 1e9)), stream=STREAM))
        pending.add(sent)
        sent.add_done_callback(pending.discard)
    try:
        await asyncio.wait_for(work.until(total), 30)
    except TimeoutError:
        pass  # the note says how many never came
    await work.broker.stop()
    note = f"{total - work.seen} of {total} never arrived" if work.seen < total else ""
    late = sorted(work.late[RATE:])
    if not late:
        raise RuntimeError("nothing arrived")

    def at(p: float) -> float:
        return late[max(0, math.ceil(len(late) * p) - 1)]

    return {"tasks": total, "sentP50": at(0.5), "sentP99": at(0.99), "sentMax": at(1), "note": note}


async def main() -> None:
    phases = {"prepare": prepare, "submit": submit, "drain": drain, "latency": latency}
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reply = await phases[line.strip()]()
        except Exception as e:  # the measuring program shows it
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
