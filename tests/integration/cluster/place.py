"""What a cluster has in one namespace, for storyboards: Deployments whose pods have pages, Services, ScaledObjects.

Each namespace is one storyboard's own, so that many of them share a cluster and a daemon without meeting.

Worked example: `chat = place.deployment("chat", pods=2)` puts a Deployment, its ReplicaSet and two ready pods, each
with a page; `chat.pods[0].says(text)` is what its engine prints; `chat.pods[0].leaves()` makes it Terminating.
"""

import re
import time
from datetime import UTC, datetime
from itertools import count

from tests.fakes import objects

LONG_AGO_S = 3600.0
_LETTERS = "bcdfghjklmnpqrstvwxz"  # those of Kubernetes' random names


def moment(at):
    """POSIX seconds as Kubernetes writes them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def namespace_of(test):
    """A namespace called like a test, by the end of its name."""
    return re.sub("[^a-z0-9]+", "-", test.lower())[-60:].strip("-")


class Pod:
    """A pod and its engine's page. What is changed is put into the cluster at once."""

    def __init__(self, place, name, address=None, **state):
        """state: what `objects.pod` takes."""
        self._place, self.name = place, name
        self.address = address or place.pages.new_address()
        self.page = None
        self.state = {"address": self.address, **state}
        self.started_at = time.time() - LONG_AGO_S

    @property
    def key(self):
        return self._place.name, self.name

    @property
    def asked(self):
        return self.page.asked

    def put(self, **state):
        self.state |= state
        status = {"startTime": moment(self.started_at)} if self.state.get("node", "") is not None else {}
        self._place.put(objects.pod(self.name, self._place.name, **self.state, status=status))

    def listens(self, text=""):
        """Its port is open, and it says this."""
        self.page = self._place.pages.open(self.address)
        self.page.text = text

    def says(self, text):
        self.page.text, self.page.behaviour = text, "ok"

    def hangs(self):
        self.page.behaviour = "hang"

    def refuses(self):
        self._place.pages.close(self.address)

    def leaves(self):
        """Somebody has asked it to go: it is Terminating, and still answers."""
        self.put(leaving=True)

    def ends(self):
        """It is gone, and its page with it."""
        self.refuses()
        self._place.delete(objects.pod(self.name, self._place.name))


class Deployment:
    """A Deployment with a ReplicaSet for each `generation` of its pods; `wanted`: its spec.replicas."""

    def __init__(self, place, name, wanted, **more):
        self._place, self.name, self._more = place, name, more
        self.pods = []
        self.scale(wanted)

    def scale(self, wanted):
        """As KEDA or the HPA does. The pods themselves come and go when the story says so."""
        self.wanted = wanted
        self._place.put(objects.deployment(self.name, self._place.name, replicas=wanted, **self._more))

    def pod(self, text="", *, generation="6d4b75cb6d", ready=True, listening=True, **state):
        """A new pod, with a page that says `text` if it listens already."""
        replicaset = f"{self.name}-{generation}"
        owner = ("Deployment", self.name)
        self._place.put(objects.replicaset(replicaset, self._place.name, owner=owner))
        name = f"{replicaset}-{self._place.letters()}"
        pod = Pod(self._place, name, owner=("ReplicaSet", replicaset), ready=ready, **state)
        if listening:
            pod.listens(text)
        pod.put()
        self.pods.append(pod)
        return pod

    def say(self, text):
        for pod in self.pods:
            pod.says(text)


class Place:
    """One namespace."""

    def __init__(self, name, fake, pages):
        self.name, self.fake, self.pages = name, fake, pages
        self._numbers = count()
        self._objects = {}  # (kind, namespace, name): document

    def letters(self):
        number = next(self._numbers)
        return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(5))

    def put(self, *documents):
        for document in documents:
            self._objects[_key(document)] = document
        self.fake.put(*documents)

    def delete(self, *documents):
        for document in documents:
            del self._objects[_key(document)]
        self.fake.delete(*documents)

    def deployment(self, name, text="", *, pods=0, wanted=None, **more):
        """`pods`: how many, ready, each saying `text`. wanted: spec.replicas, by default as many."""
        made = Deployment(self, name, pods if wanted is None else wanted, **more)
        for _ in range(pods):
            made.pod(text)
        return made

    def service(self, name, text=""):
        """A Service with one ready pod behind it; returns that pod's page."""
        pod = self.pod(f"{name}-0", owner=("StatefulSet", name))
        pod.listens(text)
        pod.put()
        self.endpoints(name, pod.address)
        return pod.page

    def endpoints(self, service, *addresses):
        """What an EndpointSlice of a Service says. Whoever may write one may write any address."""
        ports = {"": self.pages.port}
        self.put(objects.endpoint_slice(f"{service}-x", self.name, service=service, addresses=addresses, ports=ports))

    def pod(self, name, **state):
        """A pod that is not in the cluster yet, of whatever owner."""
        return Pod(self, name, **state)

    def gpu_exporter(self, name, node, text=""):
        """A pod of dcgm-exporter as its Helm chart makes it."""
        labels, ports = {"app.kubernetes.io/name": "dcgm-exporter"}, {"metrics": self.pages.port}
        pod = Pod(self, name, owner=("DaemonSet", "dcgm-exporter"), node=node, labels=labels, ports=ports)
        pod.listens(text)
        pod.put()
        return pod

    def scaled_object(self, name, *, target=None, kind=None, minimum=None, maximum=None, **words):
        """A ScaledObject with one trigger; `words` are its metadata, `port` is added to `engine`."""
        trigger = self.trigger(**words)
        document = objects.scaled_object(
            name, self.name, target=target, kind=kind, minimum=minimum, maximum=maximum, triggers=[trigger]
        )
        self.put(document)
        return document

    def trigger(self, **words):
        """Ports are the storyboards' own: 8000 or 9090 may be somebody else's on this machine."""
        ours = {"port": str(self.pages.port)} if "engine" in words else {}
        theirs = {"gateway_port": str(self.pages.port)} if "gateway" in words else {}
        return objects.trigger(**ours, **theirs, **words)

    def clear(self):
        """Nothing of it is left."""
        for document in list(self._objects.values()):
            for address in [ip["ip"] for ip in document.get("status", {}).get("podIPs", ())]:
                self.pages.close(address)
            self.delete(document)


def _key(document):
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace"), metadata["name"]
