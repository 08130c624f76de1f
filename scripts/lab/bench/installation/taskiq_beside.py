"""Asks 100 times a second for a task of taskiq that does nothing, and waits for each result.

TASKIQ_URL is that of Redis; the argument is how many. Prints a JSON list of milliseconds for each pause between two looks at a result.
"""
import asyncio
import json
import os
import subprocess
import sys
import time

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

url = os.environ["TASKIQ_URL"]
broker = RedisStreamBroker(url=url).with_result_backend(RedisAsyncResultBackend(redis_url=url, result_ex_time=60))


@broker.task(task_name="none")
async def none() -> None:
    pass


async def one(times, pause):
    began = time.perf_counter()
    task = await none.kiq()
    await task.wait_result(check_interval=pause, timeout=60)
    times.append((time.perf_counter() - began) * 1000)


async def measure(n, pause):
    for warm in range(20):
        await one([], pause)
    times, all = [], []
    for _ in range(n):
        all.append(asyncio.create_task(one(times, pause)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*all)
    return times


async def main():
    await broker.startup()
    worker = subprocess.Popen(
        [sys.executable, "-m", "taskiq", "worker", "taskiq_beside:broker", "--workers", "1", "--log-level", "ERROR"],
        stdout=subprocess.DEVNULL,
    )
    try:
        print(json.dumps({str(pause): await measure(int(sys.argv[1]), pause) for pause in (0.2, 0.001)}))
    finally:
        worker.terminate()
        worker.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
