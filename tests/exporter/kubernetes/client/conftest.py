"""Runs the real client against the fake API server, with a manual clock and a store that records its calls."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from exporter.kubernetes.client import TIME_LIMITS, connect
from exporter.kubernetes.reflector import Reflector
from exporter.kubernetes.resources import PODS
from tests.fakes.clock import ManualClock, Turn
from tests.fakes.kubernetes import PATIENCE_S, serving, write_kubeconfig


class RecordingStore:
    """Implements `Store`. names: of the objects it holds; log: (call, time); problems: None once solved."""

    def __init__(self, turn):
        self.held = {}
        self.log = []
        self.problems = []
        self._turn = turn

    def parse(self, resource, documents):
        return documents

    def replacing(self, resource, namespace, kept, now):
        self.held = {key: d for key, d in self.held.items() if namespace not in {None, key[0]}}
        for document in kept:
            self._put(document)
        self._record("replace", now)
        yield

    def apply(self, resource, happened, document, now):
        if happened == "DELETED":
            self.held.pop(self._key(document))
        else:
            self._put(document)
        self._record(happened, now)

    def mark_current(self, resource, now, namespace):
        self._record("current", now)

    def mark_lost(self, resource, now, namespace):
        self._record("lost", now)

    def mark_refused(self, resource, now, namespace):
        self._record("refused", now)

    def mark_absent(self, resource, now):
        self.held.clear()
        self._record("absent", now)

    def report(self, resource, namespace, problem):
        self.problems.append(problem)
        self._turn.changed()

    @property
    def names(self):
        return sorted(name for _, name in self.held)

    def times_of(self, call):
        """Returns the times of this call."""
        return [at for name, at in self.log if name == call]

    def _put(self, document):
        self.held[self._key(document)] = document

    @staticmethod
    def _key(document):
        return document["metadata"].get("namespace"), document["metadata"]["name"]

    def _record(self, call, now):
        self.log.append((call, now))
        self._turn.changed()


class NoJitter(Random):
    """Returns the longest delays and the shortest watches."""

    def uniform(self, low, high):
        return high

    def randint(self, low, high):
        return low


@pytest.fixture
def turn():
    return Turn()


@pytest.fixture
def clock(turn):
    return ManualClock(turn)


@pytest.fixture
def store(turn):
    return RecordingStore(turn)


@pytest.fixture
async def fake():
    async with serving() as server:
        yield server


@pytest.fixture
async def connected(tmp_path, fake):
    """`await connected(patience, token=…)`: the real client, connected to the fake through a kubeconfig file."""
    clients = []

    async def connect_to(patience=TIME_LIMITS, token=None):
        file = write_kubeconfig(tmp_path / "kubeconfig", fake.url, token=token)
        client = await connect(str(file), None, NoJitter(), patience)
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
    """`async with following(PODS, "ai"):` runs a reflector that keeps `store` up to date by `clock`."""

    @asynccontextmanager
    async def beside(resource=PODS, *namespaces, api=None):
        tasks = [
            asyncio.create_task(
                Reflector(api or client, resource, namespace, store, clock, store.report, NoJitter()).follow()
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
    """`await up_to_date("chat-0")` waits until one watch is open and the store holds exactly these objects."""

    async def wait(*names, watching=1):
        await turn.until(lambda: store.names == sorted(names))
        await fake.until(lambda: fake.watching == watching)

    return wait
