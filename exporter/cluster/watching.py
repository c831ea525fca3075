"""Everything that is asked of a Kubernetes API, at once: one task for each resource of each namespace.

client = await connect(kubeconfig=None, context=None)
await watch_all(client, cluster, namespaces=(), clock=clock, told=log_it, jitter=Random())   # until cancelled
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from exporter.clock import Clock

from .api import Api
from .reflector import Store, Told, follow
from .resources import RESOURCES


async def watch_all(
    api: Api, store: Store, *, namespaces: Sequence[str], clock: Clock, told: Told, jitter: Random
) -> None:
    """Keep `store` up to date, for good. namespaces: none is all of them, each resource with one watch."""
    async with asyncio.TaskGroup() as tasks:
        for resource in RESOURCES:
            deaf: set[str | None] = set()
            for namespace in (namespaces or (None,)) if resource.namespaced else (None,):
                watching = follow(api, resource, namespace, store, clock, told, jitter, deaf)
                tasks.create_task(watching, name=f"watch {resource.name} {namespace or ''}".rstrip())
