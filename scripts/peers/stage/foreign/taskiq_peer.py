"""taskiq answers the phases of ../../rival/serve.go: one line in, one line of JSON out.

The workers are taskiq's own command line with two processes, as its documentation starts them; what they have read and
acknowledged is watched through XINFO GROUPS. Their latencies come back through a file.
"""

import asyncio
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

from taskiq_redis import RedisStreamBroker

TASKS = int(os.environ.get("PEERS_TASKS", 1))
WORKERS = int(os.environ.get("PEERS_WORKERS", 1))
RATE = int(os.environ.get("PEERS_RATE", 1))
SECONDS = int(os.environ.get("PEERS_SECONDS", 1))
HOST, PORT = os.environ.get("PEERS_REDIS", "127.0.0.1:6379").split(":")
LATENCIES = os.environ.get("PEERS_LATENCIES", "")
BATCH = 100  # entries of one read
START_LIMIT = 30  # seconds

broker = RedisStreamBroker(url=f"redis://{HOST}:{PORT}/0", xread_count=BATCH)


def payload(due_ns: int = 0) -> str:
    return struct.pack(">Q", due_ns).hex() + "x" * 184


@broker.task(task_name="noop")
async def noop(text: str) -> None:
    due = int(text[:16], 16)
    if due and LATENCIES:
        with open(LATENCIES, "a") as f:
            f.write("%f\n" % ((time.time_ns() - due) / 1e6))


def start_worker(latencies: str) -> subprocess.Popen:
    return subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "taskiq"), "worker", "taskiq_peer:broker",
         "--workers", "2", "--max-async-tasks", str(WORKERS), "--log-level", "ERROR"],
        cwd=os.path.dirname(os.path.abspath(__file__)), env=dict(os.environ, PEERS_LATENCIES=latencies),
        stdin=subprocess.DEVNULL, stdout=sys.stderr)


async def stop_worker(worker: subprocess.Popen) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        await asyncio.to_thread(worker.wait, 8)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


class Peer:
    def __init__(self) -> None:
        import redis.asyncio as redis
        self.redis = redis.Redis(host=HOST, port=int(PORT))

    async def prepare(self) -> dict:
        await self.redis.flushall()
        await broker.startup()  # makes the group
        return {}

    async def submit(self) -> dict:
        left = iter(range(TASKS))

        async def client() -> None:
            for _ in left:
                await noop.kiq(payload())

        began = time.perf_counter()
        await asyncio.gather(*[client() for _ in range(WORKERS)])
        return {"tasks": TASKS, "seconds": time.perf_counter() - began}

    async def group(self) -> tuple[int, int]:
        """Entries that were read, and those that are not yet done."""
        g = (await self.redis.xinfo_groups("taskiq"))[0]
        return g["entries-read"] or 0, (g.get("lag") or 0) + g["pending"]

    async def drain(self) -> dict:
        """Timed from the first read, so that the start of its processes does not count; scaled to all tasks."""
        worker = start_worker("")
        try:
            began, todo = None, TASKS
            while True:
                read, left = await self.group()
                if began is None and read:
                    began, todo = time.perf_counter(), left
                if read >= TASKS and left == 0:
                    break
                await asyncio.sleep(0.005)
            seconds = time.perf_counter() - began
        finally:
            await stop_worker(worker)
        return {"tasks": TASKS, "seconds": seconds * TASKS / max(todo, 1), "note": "2 worker processes, timed from the first read"}

    async def latency(self) -> dict:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(__file__))) as out:
            worker = start_worker(out.name)
            try:
                await self.ready()
                total = await self.open_loop()
                for _ in range(500):
                    if (await self.group())[1] == 0:
                        break
                    await asyncio.sleep(0.01)
            finally:
                await stop_worker(worker)
            with open(out.name) as f:
                late = [float(x) for x in f]
        note = f"{total - len(late)} of {total} never arrived" if len(late) < total else ""
        late = sorted(late[RATE:])
        if not late:
            raise RuntimeError("nothing arrived")

        def at(p: float) -> float:
            return late[max(0, math.ceil(len(late) * p) - 1)]

        return {"tasks": total, "sentP50": at(0.5), "sentP99": at(0.99), "sentMax": at(1), "note": note}

    async def ready(self) -> None:
        """One task through the workers: they have started."""
        await noop.kiq(payload())
        for _ in range(START_LIMIT * 100):
            read, left = await self.group()
            if read and not left:
                return
            await asyncio.sleep(0.01)
        raise RuntimeError("the workers did not start")

    async def open_loop(self) -> int:
        total, start, pending = RATE * (SECONDS + 1), time.time(), set()
        for i in range(total):
            due = start + i / RATE
            wait = due - time.time()
            if wait > 0:
                await asyncio.sleep(wait)
            sent = asyncio.ensure_future(noop.kiq(payload(int(due * 1e9))))
            pending.add(sent)
            sent.add_done_callback(pending.discard)
        while pending:
            await asyncio.sleep(0.01)
        return total


async def main() -> None:
    peer = Peer()
    phases = {"prepare": peer.prepare, "submit": peer.submit, "drain": peer.drain, "latency": peer.latency}
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reply = await phases[line.strip()]()
        except Exception as e:  # the measuring program shows it
            reply = {"error": repr(e)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
