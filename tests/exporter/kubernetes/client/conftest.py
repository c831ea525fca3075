"""The fake API, the real client against it, a manual clock, and a store that records its calls."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from exporter.kubernetes.client import TIME_LIMITS, connect
from exporter.kubernetes.reflector import Reflector
from exporter.kubernetes.resources import PODS
from tests.fakes.kubernetes import PATIENCE_S, serving, write_kubeconfig


class Turn:
    """Something changed: whoever waits for something looks again."""

    def __init__(self):
        self._event = asyncio.Event()

    def changed(self):
        self._event.set()
        self._event = asyncio.Event()

    async def until(self, true):
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self._event.wait()


class HandClock:
    """Speaks `exporter.clock.Clock`; time passes when the test says so. slept: how long each sleep was to be."""

    def __init__(self, turn):
        self.time = 1000.0
        self.slept = []
        self._sleepers = []
        self._turn = turn

    def now(self):
        return self.time

    async def sleep(self, seconds):
        sleeper = (self.time + seconds, asyncio.get_running_loop().create_future())
        self.slept.append(seconds)
        self._sleepers.append(sleeper)
        self._turn.changed()
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    def advance(self, seconds):
        self.time += seconds
        for when, sleeper in self._sleepers:
            if when <= self.time + 1e-9 and not sleeper.done():
                sleeper.set_result(None)

    async def asleep(self):
        """Wait until the reflector sleeps; for how long it means to."""
        await self._turn.until(lambda: any(not sleeper.done() for _, sleeper in self._sleepers))
        return self.slept[-1]

    async def nap(self):
        """The same, and let it sleep out."""
        seconds = await self.asleep()
        self.advance(seconds)
        return seconds

    async def rush(self, true):
        """Let everybody sleep out, again and again, until `true()`."""

        def asleep():
            return any(not sleeper.done() for _, sleeper in self._sleepers)

        while not true():
            await self._turn.until(lambda: true() or asleep())
            if asleep():
                self.advance(max(when for when, _ in self._sleepers) - self.time)


class Remembered:
    """Speaks `Store`. `names` is what it holds; `log` what it was told, in words; `told` what people were."""

    def __init__(self, turn):
        self.held = {}
        self.log = []
        self.published = []
        self._turn = turn

    def parse(self, resource, documents):
        return documents

    def replace_parsed(self, resource, namespace, kept, now):
        self.held = {key: d for key, d in self.held.items() if namespace not in {None, key[0]}}
        for document in kept:
            self._put(document)
        self._note("replace", now)

    def apply(self, resource, happened, document, now):
        if happened == "DELETED":
            self.held.pop(self._key(document))
        else:
            self._put(document)
        self._note(happened, now)

    def mark_current(self, resource, now):
        self._note("heard", now)

    def mark_lost(self, resource, now):
        self._note("lost", now)

    def mark_absent(self, resource, now):
        self.held.clear()
        self._note("absent", now)

    def tell(self, resource, namespace, problem):
        self.published.append(problem)
        self._turn.changed()

    @property
    def names(self):
        return sorted(name for _, name in self.held)

    def said(self, word):
        """At which times."""
        return [at for what, at in self.log if what == word]

    def _put(self, document):
        self.held[self._key(document)] = document

    @staticmethod
    def _key(document):
        return document["metadata"].get("namespace"), document["metadata"]["name"]

    def _note(self, what, now):
        self.log.append((what, now))
        self._turn.changed()


class Unscattered(Random):
    """Delays in full, and the shortest of watches."""

    def uniform(self, low, high):
        return high

    def randint(self, low, high):
        return low


@pytest.fixture
def turn():
    return Turn()


@pytest.fixture
def clock(turn):
    return HandClock(turn)


@pytest.fixture
def store(turn):
    return Remembered(turn)


@pytest.fixture
async def fake():
    async with serving() as server:
        yield server


@pytest.fixture
async def connected(tmp_path, fake):
    """`await connected(patience, token=…)`: the real client, to the fake through a kubeconfig file."""
    clients = []

    async def connect_to(patience=TIME_LIMITS, token=None):
        file = write_kubeconfig(tmp_path / "kubeconfig", fake.url, token=token)
        client = await connect(str(file), None, Unscattered(), patience)
        clients.append(client)
        return client

    yield connect_to
    for client in clients:
        await client.close()


@pytest.fixture
async def client(connected):
    return await connected()


@pytest.fixture
def following(store, clock, client):
    """`async with following(PODS, "ai"):` a reflector beside the test, keeping `store` up to date by `clock`."""

    @asynccontextmanager
    async def beside(resource=PODS, *namespaces, api=None):
        deaf = set()
        tasks = [
            asyncio.create_task(
                Reflector(api or client, resource, namespace, store, clock, store.tell, Unscattered(), deaf).follow()
            )
            for namespace in namespaces or (None,)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()

    return beside


@pytest.fixture
def up_to_date(fake, store, turn):
    """`await up_to_date("chat-0")`: wait until one watch is open and the store holds exactly these."""

    async def wait(*names, watching=1):
        await turn.until(lambda: store.names == sorted(names))
        await fake.until(lambda: fake.watching == watching)

    return wait
