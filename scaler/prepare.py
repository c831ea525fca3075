"""Prepares a configuration off the event loop: parses the objects of the cluster, plans every workload, finds places.

All of it is a function of the configuration and of what the cluster's objects say at one moment. What changes in the
cluster after that moment is for `Works` to parse when it takes over.

Worked example: with 10,000 workloads `prepare` takes seconds in a thread, in which no call waits; `Works` then parses
the one object that was edited meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from exporter.cluster.objects import Hpa, Scalable, ScaledObject
from exporter.cluster.state import Cluster
from exporter.targets import Discovery

from . import sources
from .census import Census, ParsedObjects, ordered, take
from .config import Config, DcgmExporter
from .plan import Plan
from .sources import Lookers, Place

if TYPE_CHECKING:
    from .works import Surroundings

Objects: TypeAlias = tuple[tuple[ScaledObject, ...], tuple[Scalable, ...], tuple[Hpa, ...]]


class Prepared(NamedTuple):
    """What the objects of the cluster say under a configuration, and what follows from it.

    objects: those that `census` was taken of. places: where pages are looked for.
    """

    parsed: ParsedObjects
    plans: sources.Plans
    objects: Objects
    census: Census
    places: dict[Place, Discovery]

    @classmethod
    def of(cls, config: Config) -> Prepared:
        """Nothing is parsed yet but the configuration itself."""
        return cls(ParsedObjects(), sources.Plans(config), ((), (), ()), take(config, (), (), ()), {})

    def renewed(self, config: Config, cluster: Cluster | None) -> Prepared:
        """The same with a census of the objects as they are now. Only those that have changed are parsed."""
        objects = objects_of(cluster)
        if objects == self.objects:
            return self
        return self._replace(objects=objects, census=take(config, *objects, self.parsed))

    def planned(self, census: Census) -> list[Plan]:
        """What the decider is to know of the workloads of a census. Only those that have changed are planned."""
        return self.plans.take(census.workloads, ordered(census), census.tolerances, census.jobs, census.targets)


async def prepare(config: Config, around: Surroundings) -> Prepared:
    """Parse and plan everything in a thread, so that no call waits: 10,000 workloads take seconds.

    What changes in the cluster meanwhile is parsed when `Works` is made, and nothing else.
    """
    lookers = Lookers(around.cluster, around.promql, around.redis)

    def parse_and_plan(objects: Objects) -> Prepared:
        parsed, plans = ParsedObjects(), sources.Plans(config)
        census = take(config, *objects, parsed)
        # Of a queue in Redis the servers are known to the loop alone.
        places = (each for each in sources.places(config, census.workloads) if _is_apart(each))
        found = {place: sources.discovery(place, config, lookers) for place in places}
        prepared = Prepared(parsed, plans, objects, census, found)
        prepared.planned(census)
        return prepared

    try:
        return await asyncio.to_thread(parse_and_plan, objects_of(around.cluster))
    except Exception:  # noqa: BLE001 - a bug of ours in reading one object: Works meets it too, and says so
        return Prepared.of(config)


def objects_of(cluster: Cluster | None) -> Objects:
    """What a census is taken of."""
    return ((), (), ()) if cluster is None else (cluster.scaled_objects(), cluster.scalables(), cluster.hpas())


def _is_apart(place: Place) -> bool:
    return isinstance(place.page, DcgmExporter) or place.page.redis is None
