"""A live cluster -> everything that is to be said of the objects in it. It lists, and does nothing else.

The same rules as for files, and those about what the controllers themselves say. A kind that RBAC refuses is passed
over and said; one that the cluster does not have is passed over. An API server looks at rights first: to whom they do
not name a kind it says 403 of one that it does not have.

Worked example: `await check_cluster(client, "ai", now, frozenset())` lists all kinds of `CHECKED` in namespace `ai`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple, Protocol

from exporter.cluster.api import Absent, Api, Document, Gone, Refused
from exporter.cluster.resources import CHECKED, Resource

from ..config.problem import Problem
from .linted import linted
from .nodes import value_of
from .things import Thing, things

_ROUNDS = 3  # a list that is forgotten half-way (410) is begun again so often


class Lists(Api, Protocol):
    async def groups(self) -> frozenset[str]:
        """Each `GROUP/VERSION` that the cluster has. Raises ApiFailure."""


class Live(NamedTuple):
    """problems: by object; `file` is the object's kind and name, and there are no lines. seen: how many objects.
    refused: what was not read, and why. blind: nothing was read at all.
    """

    problems: list[Problem]
    seen: int
    refused: list[str]
    blind: bool


async def check_cluster(api: Lists, namespace: str | None, now: float | None, ignored: frozenset[str]) -> Live:
    """namespace: None for all. Raises ApiFailure where the API does not answer."""
    found: list[Thing] = []
    refused: dict[Resource, str] = {}
    absent = 0
    for resource in CHECKED:
        try:
            found += [thing for one in await _all(api, resource, namespace) for thing in _things(one, resource)]
        except Absent:
            absent += 1
        except Refused as failure:
            refused[resource] = failure.detail
    served = await api.groups() if any(resource.optional for resource in refused) else frozenset[str]()
    run = linted(found, None, now, ignored, live=True)
    return Live(
        [replace(one, line=None, column=None) for one in run.problems],
        len(found),
        [why for resource, why in refused.items() if not resource.optional or resource.version in served],
        blind=len(refused) + absent == len(CHECKED),
    )


async def _all(api: Api, resource: Resource, namespace: str | None) -> list[Document]:
    left = _ROUNDS
    while True:
        left -= 1
        try:
            return [item async for item in _pages(api, resource, namespace)]
        except Gone:
            if not left:
                raise


async def _pages(api: Api, resource: Resource, namespace: str | None) -> AsyncIterator[Document]:
    page = await api.page(resource, namespace, "")
    while True:
        for item in page.items:
            yield item
        if not page.after:
            return
        page = await api.page(resource, namespace, page.after)


def _things(document: Document, resource: Resource) -> list[Thing]:
    """In a list, an object does not say of what kind it is."""
    version = resource.path.removeprefix("/apis/").removeprefix("/api/")
    whole = {**document, "apiVersion": version, "kind": resource.kind}
    return [replace(one, file=str(one)) for one in things(value_of(whole), "")]
