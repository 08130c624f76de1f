"""A FastStream application that tests drive: commands come as JSON lines, what happens goes out as JSON lines.

    peer.py URL json|binary [STREAM GROUP CONSUMER]
"""

import asyncio
import json
import sys
from datetime import datetime
from typing import Any

from faststream import Context
from faststream.redis import RedisBroker, StreamSub
from redis.asyncio import Redis

url, form = sys.argv[1:3]
options = {}
if form == "json":
    from faststream.redis.parser import JSONMessageFormat

    options["message_format"] = JSONMessageFormat
broker = RedisBroker(url, logger=None, **options)
redis = Redis.from_url(url)
failures = 0


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def status(uuid: str, state: str, **more: Any) -> None:
    # As the best-practice project writes it.
    text = json.dumps({"status": state, "updated_at": datetime.now().isoformat(), **more})
    await redis.setex("task:status:" + uuid, 259200, text)


async def handle(body: Any, message: Any = Context("message")) -> Any:
    global failures
    kind = type(body).__name__
    shown = body.hex() if isinstance(body, bytes) else body
    uuid = message.headers.get("x-message-uuid")
    say(got=shown, kind=kind, headers=message.headers, correlation_id=message.correlation_id, content_type=message.content_type)
    if failures > 0:
        failures -= 1
        await status(uuid, "failed", error={"type": "ValueError", "message": "no", "traceback": "Traceback …"})
        raise ValueError("no")
    if uuid:
        await status(uuid, "completed", result={"ok": shown})
    return {"ok": shown}


if len(sys.argv) > 3:
    stream, group, consumer = sys.argv[3:6]
    broker.subscriber(stream=StreamSub(stream, group=group, consumer=consumer))(handle)


async def command(do: str, value: Any = None, bytes_hex: str | None = None, uuid: str | None = None, **rest: Any) -> None:
    global failures
    if bytes_hex is not None:
        value = bytes.fromhex(bytes_hex)
    if do == "publish":
        entry = await broker.publish(value, **rest)
        say(published=str(entry))
    elif do == "request":
        answer = await broker.request(value, **rest)
        say(response=await answer.decode(), headers=answer.headers)
    elif do == "fail":
        failures = value
        say(done=True)
    elif do == "pending":
        await status(uuid, "pending")
        say(done=True)
    elif do == "status":
        found = json.loads(await redis.get("task:status:" + uuid))
        say(status=found["status"], year=datetime.fromisoformat(found["updated_at"]).year)


async def main() -> None:
    await broker.start()
    say(ready=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            await command(**json.loads(line))
        except Exception as e:
            say(failed=repr(e))
    await broker.stop()
    await redis.aclose()


asyncio.run(main())
