"""A namespace of the fake cluster: Deployments with pods that are metrics targets, Services, ScaledObjects.

Each test has its own namespace, so that many tests share a cluster and a daemon.

Worked example: `chat = tenant.deployment("chat", pods=2)` creates a Deployment, its ReplicaSet and two ready pods, each
with a target; `chat.pods[0].serve(text)` sets the text of its engine's metrics; `chat.pods[0].terminate()` makes it
Terminating.
"""

import re
import time
from datetime import UTC, datetime
from itertools import count

from . import objects

LONG_AGO_S = 3600.0
_LETTERS = "bcdfghjklmnpqrstvwxz"  # the letters of Kubernetes' random names


def moment(at):
    """POSIX seconds as Kubernetes writes them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def namespace_of(test):
    """A namespace named after the end of a test's name."""
    return re.sub("[^a-z0-9]+", "-", test.lower())[-60:].strip("-")


class Pod:
    """A pod and its engine's target. Changes go to the cluster at once."""

    def __init__(self, tenant, name, address=None, **state):
        """state: arguments of `objects.pod`. Without another node it runs on that of the tenant, which has its name."""
        self._tenant, self.name = tenant, name
        self.address = address or tenant.targets.new_address()
        self.target = None
        self.state = {"address": self.address, "node": tenant.name, **state}
        self.started_at = time.time() - LONG_AGO_S

    @property
    def key(self):
        return self._tenant.name, self.name

    @property
    def scrapes(self):
        return self.target.scrapes

    def put(self, **state):
        self.state |= state
        status = {"startTime": moment(self.started_at)} if self.state.get("node", "") is not None else {}
        self._tenant.put(objects.pod(self.name, self._tenant.name, **self.state, status=status))

    def listen(self, text=""):
        """Open its port, with this text."""
        self.target = self._tenant.targets.open(self.address)
        self.target.body = text

    def serve(self, text):
        self.target.body, self.target.behaviour = text, "ok"

    def hang(self):
        self.target.behaviour = "hang"

    def refuse(self):
        self._tenant.targets.close(self.address)

    def terminate(self):
        """Mark it as Terminating; it still responds."""
        self.put(leaving=True)

    def remove(self):
        """Remove it together with its target."""
        self.refuse()
        self._tenant.delete(objects.pod(self.name, self._tenant.name))


class Deployment:
    """A Deployment with a ReplicaSet for each `generation` of its pods; `wanted`: its spec.replicas."""

    def __init__(self, tenant, name, wanted, **more):
        self._tenant, self.name, self._more = tenant, name, more
        self.pods = []
        self.scale(wanted)

    def scale(self, wanted):
        """Set spec.replicas as KEDA or the HPA does. The test itself adds and removes the pods."""
        self.wanted = wanted
        self._tenant.put(objects.deployment(self.name, self._tenant.name, replicas=wanted, **self._more))

    def pod(self, text="", *, generation="6d4b75cb6d", ready=True, listening=True, **state):
        """A new pod; if it listens already, its target has `text`."""
        replicaset = f"{self.name}-{generation}"
        owner = ("Deployment", self.name)
        self._tenant.put(objects.replicaset(replicaset, self._tenant.name, owner=owner))
        name = f"{replicaset}-{self._tenant.letters()}"
        pod = Pod(self._tenant, name, owner=("ReplicaSet", replicaset), ready=ready, **state)
        if listening:
            pod.listen(text)
        pod.put()
        self.pods.append(pod)
        return pod

    def serve(self, text):
        for pod in self.pods:
            pod.serve(text)


class Tenant:
    """One namespace."""

    def __init__(self, name, fake, targets):
        self.name, self.fake, self.targets = name, fake, targets
        self._numbers = count()
        self._objects = {}  # (kind, namespace, name): document

    def letters(self):
        number = next(self._numbers)
        return "".join(_LETTERS[number // len(_LETTERS) ** position % len(_LETTERS)] for position in range(5))

    def put(self, *documents):
        for document in documents:
            self._objects[_key(document)] = document
        self.fake.put(*documents)

    def delete(self, *documents):
        for document in documents:
            del self._objects[_key(document)]
        self.fake.delete(*documents)

    def deployment(self, name, text="", *, pods=0, wanted=None, **more):
        """`pods`: the number of ready pods, each with `text`. wanted: spec.replicas, by default the same number."""
        deployment = Deployment(self, name, pods if wanted is None else wanted, **more)
        for _ in range(pods):
            deployment.pod(text)
        return deployment

    def service(self, name, text=""):
        """A Service with one ready pod; returns that pod's target."""
        pod = self.pod(f"{name}-0", owner=("StatefulSet", name))
        pod.listen(text)
        pod.put()
        self.endpoints(name, pod.address)
        return pod.target

    def endpoints(self, service, *addresses):
        """The endpoints in a Service's EndpointSlice. Anyone with write access to it may add any address."""
        ports = {"": self.targets.port}
        self.put(objects.endpoint_slice(f"{service}-x", self.name, service=service, addresses=addresses, ports=ports))

    def pod(self, name, **state):
        """A pod with any owner, not in the cluster yet."""
        return Pod(self, name, **state)

    def gpu_exporter(self, name, node, text=""):
        """A pod of dcgm-exporter, as its Helm chart creates it."""
        labels, ports = {"app.kubernetes.io/name": "dcgm-exporter"}, {"metrics": self.targets.port}
        pod = Pod(self, name, owner=("DaemonSet", "dcgm-exporter"), node=node, labels=labels, ports=ports)
        pod.listen(text)
        pod.put()
        return pod

    def scaled_object(self, name, *, target=None, kind=None, minimum=None, maximum=None, **metadata):
        """A ScaledObject with one trigger and this metadata; an `engine` gets its `port`."""
        trigger = self.trigger(**metadata)
        document = objects.scaled_object(
            name, self.name, target=target, kind=kind, minimum=minimum, maximum=maximum, triggers=[trigger]
        )
        self.put(document)
        return document

    def trigger(self, **metadata):
        """Adds the targets' port, since 8000 and 9090 may be in use on this machine."""
        engine_port = {"port": str(self.targets.port)} if "engine" in metadata else {}
        gateway_port = {"gateway_port": str(self.targets.port)} if "gateway" in metadata else {}
        return objects.trigger(**engine_port, **gateway_port, **metadata)

    def clear(self):
        """Delete everything in the namespace."""
        for document in list(self._objects.values()):
            for address in [ip["ip"] for ip in document.get("status", {}).get("podIPs", ())]:
                self.targets.close(address)
            self.delete(document)


def _key(document):
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace"), metadata["name"]
