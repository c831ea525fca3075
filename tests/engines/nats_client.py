"""A client of NATS JetStream: `python nats_client.py PORT`, in the environment that `make test-engines` creates for it.

Reads commands from stdin, a line each, and prints `ok` once the server has confirmed one: `stream` creates the stream,
`consumer` the consumer, `publish 7` sends seven jobs, `take 3` receives three, `finish` acknowledges what it has
received, `give_back` returns it unfinished.
"""

import asyncio
import sys

import nats

STREAM, SUBJECT, CONSUMER = "JOBS", "jobs.new", "workers"


class Client:
    def __init__(self, connection):
        self._stream = connection.jetstream()
        self._taken = []

    async def stream(self):
        await self._stream.add_stream(name=STREAM, subjects=[SUBJECT])

    async def consumer(self):
        self._consumer = await self._stream.pull_subscribe(SUBJECT, CONSUMER)

    async def publish(self, count):
        for _ in range(count):
            await self._stream.publish(SUBJECT, b"job")

    async def take(self, count):
        while count:
            messages = await self._consumer.fetch(count, timeout=60)
            self._taken += messages
            count -= len(messages)

    async def finish(self):
        for message in self._taken:
            await message.ack_sync(timeout=60)
        self._taken = []

    async def give_back(self):
        for message in self._taken:
            await message.nak()
        self._taken = []


async def main():
    connection = await nats.connect(f"nats://127.0.0.1:{sys.argv[1]}")
    client = Client(connection)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *counts = line.split()
        await getattr(client, command)(*map(int, counts))
        await connection.flush()
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
