"""A stand-in for the Kubernetes API over loopback. It says so in every answer (`Server: fake-kubernetes`).

It keeps objects, lists them in pages, and tells watches what happens, with versions, bookmarks, 410 and 404 as the real
one does; and it does on request what real ones do on bad days. Every request is written down in `requests`. Objects are
made by `tests.fakes.objects`. Leases are written through HTTP, with 409 for who comes second, and Events, checked as
the real one checks those of events.k8s.io/v1. Not here: writing anything else, admission, RBAC rules, garbage
collection, and the end of a watch by its timeoutSeconds.

Beside a test: `async with serving() as fake`. For a daemon in a process of its own, with a loop in a thread of its own:
`with serving_in_thread() as fake`, and `write_kubeconfig(path, fake.url)`. What changes it may be called in any thread.
"""

import asyncio
import json
import re
import threading
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from typing import NamedTuple

import yaml
from aiohttp import web

from exporter.kubernetes.resources import CHECKED, RESOURCES, Resource

from .objects import listed, partly, status_object

PATIENCE_S = 20.0  # never waited for: only says which await hung
PARTIAL = "as=PartialObjectMetadata"


KINDS = (*RESOURCES, *(each for each in CHECKED if each not in RESOURCES))


class Asked(NamedTuple):
    """A request as it came. verb: "list" (each page is one) or "watch"."""

    verb: str
    resource: Resource
    namespace: str | None
    version: str
    after: str
    query: dict
    headers: dict


class Happened(NamedTuple):
    """A line of every watch that it concerns. resource: None concerns all."""

    version: int
    type: str
    resource: Resource | None
    namespace: str | None
    document: dict | bytes


class FakeKubernetes:
    def __init__(self, resources=RESOURCES):
        """`resources`: the kinds that this cluster has; see `install`."""
        self.port = 0
        self.scheme = "http"
        self.requests = []
        self.watching = 0  # watches that are open
        self.page_objects = None  # the most on one page, whatever limit says
        self.gone_in_stream = True  # 410 for a watch: as an ERROR event, as the watch cache does; else as HTTP status
        self.tokens = None  # those that are let in; None: anybody
        self.users = {}  # whom TokenReviews know: the token, and `status.user`
        self.allowed = lambda spec: False  # what SubjectAccessReviews say, by their spec
        self.may = lambda attributes: True  # what SelfSubjectAccessReviews say, by what is wanted
        self.identity = "system:serviceaccount:tidegate:tidegate"  # whom everybody is taken for
        self.minor = "37"  # of its version
        self.date = None  # the header of that name; None: the right one
        self.config_maps = {}  # (namespace, name): data
        self.api_services = {}  # name: spec
        self.leases = {}  # (namespace, name): document
        self.shown_lease = lambda document: document  # what whoever reads one is shown
        self.lease_writes = []  # (namespace, name, holder) of each that was taken
        self.events = {}  # (namespace, name): document
        self.ending = set()  # namespaces that are being deleted, and take nothing new
        self.event_writes = []  # (verb, document as it then was) of each that was taken
        self.reviews = []  # (kind, spec) of each review, as it came
        self.shown = []  # the Authorization header of each question that is neither list nor watch
        self._resources = set(resources)
        self._objects = {}  # (resource, namespace, name): document
        self._version, self._forgotten = 1000, 1000
        self._history = []
        self._checkpoints = {}  # continue token: (version, documents that are left)
        self._lock = threading.RLock()
        self._loop = None
        self._turn = asyncio.Event()
        self._cut, self._mid_line = 0, False
        self.mend()

    # What happens in the cluster

    def put(self, *documents):
        """Create or change these objects."""
        with self._lock:
            for document in documents:
                key = self._key(document)
                self._happen("MODIFIED" if key in self._objects else "ADDED", key, deepcopy(document))
        self._changed()

    def delete(self, *documents):
        """Delete these; of each only kind, namespace and name are looked at."""
        with self._lock:
            for document in documents:
                key = self._key(document)
                self._happen("DELETED", key, self._objects.pop(key))
        self._changed()

    def install(self, *resources):
        """From now on the cluster has these kinds (a CRD was applied)."""
        self._resources.update(resources)

    def uninstall(self, *resources):
        """It has them no more, nor their objects; watches of them end."""
        with self._lock:
            self._resources.difference_update(resources)
            self._objects = {key: document for key, document in self._objects.items() if key[0] in self._resources}
        self.disconnect()

    # What happens to the API server

    def bookmark(self):
        """Tell every watch how far it is, as the real one does about once a minute."""
        self._tell(Happened(self._version, "BOOKMARK", None, None, b""))

    def say(self, resource, line):
        """Send every watch of it a line as it is, in bytes."""
        self._tell(Happened(self._version, "RAW", resource, None, line))

    def compact(self):
        """Forget the past: older watches and half-read lists are 410 Gone from now on."""
        with self._lock:
            self._forgotten = self._version
            self._checkpoints.clear()

    def disconnect(self, *, mid_line=False):
        """End every watch: properly, or by breaking the connection in the middle of a line."""
        self._cut, self._mid_line = self._cut + 1, mid_line
        self._changed()

    def hang(self):
        """Take connections and requests, and say nothing; on open watches neither."""
        self._hanging = True
        self._changed()

    def refuse(self):
        """Drop every connection without an answer, those of watches too."""
        self._refusing = True
        self.disconnect(mid_line=True)

    def slow_lists(self, seconds):
        self._slow_s = seconds

    def forbid(self, resource, *verbs):
        """403 for list and watch, or for one of them."""
        self._forbidden |= {(verb, resource) for verb in verbs or ("list", "watch")}

    def fail(self, resource, status, retry_after=None):
        """Answer requests for it with this status."""
        self._failing[resource] = (status, retry_after)

    def mend(self):
        """Everything works again."""
        self._hanging = self._refusing = False
        self._slow_s = 0.0
        self._forbidden = set()
        self._failing = {}
        self._changed()

    # What a test asks

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def version(self):
        return str(self._version)

    def asked(self, verb=None, resource=None):
        """The requests so far, or those of this kind."""
        return [a for a in self.requests if verb in {None, a.verb} and resource in {None, a.resource}]

    @property
    def lists(self):
        """How many lists were begun, however many pages each has."""
        return len([a for a in self.asked("list") if not a.after])

    async def until(self, true):
        """Wait until `true()`, looking again at each request and each change. Only in the fake's own loop."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self._turn.wait()

    # How it works

    @staticmethod
    def _key(document):
        resource = next((r for r in KINDS if r.kind == document["kind"]), None)
        assert resource is not None, f"{document['kind']} is of none of Tidegate's RESOURCES"
        return resource, document["metadata"].get("namespace"), document["metadata"]["name"]

    def _happen(self, what, key, document):
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        if what != "DELETED":
            self._objects[key] = document
        self._history.append(Happened(self._version, what, key[0], key[1], document))

    def _tell(self, happened):
        with self._lock:
            self._history.append(happened)
        self._changed()

    def _changed(self):
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self):
        self._turn.set()
        self._turn = asyncio.Event()

    def application(self):
        app = web.Application()
        app.router.add_get("/version", self._say_version)
        app.router.add_get("/apis", self._say_groups)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", self._review)
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._review)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._review)
        app.router.add_get("/api/v1/namespaces/{namespace}/configmaps/{name}", self._config_map)
        app.router.add_get("/apis/apiregistration.k8s.io/v1/apiservices/{name}", self._api_service)
        leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        app.router.add_post(leases, self._create_lease)
        app.router.add_get(f"{leases}/{{name}}", self._get_lease)
        app.router.add_put(f"{leases}/{{name}}", self._update_lease)
        events = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        app.router.add_post(events, self._create_event)
        app.router.add_patch(f"{events}/{{name}}", self._patch_event)
        for path in sorted({r.path for r in KINDS}):
            app.router.add_get(f"{path}/{{name}}", self._answer)
            app.router.add_get(f"{path}/namespaces/{{namespace}}/{{name}}", self._answer)
        app.on_response_prepare.append(self._sign)
        return app

    async def _sign(self, _request, response):
        response.headers["Server"] = "fake-kubernetes"
        if self.date is not None:
            response.headers["Date"] = self.date

    async def _say_version(self, request):
        if (answer := await self._no_answer(request, "Version")) is not None:
            return answer
        written = f"v1.{self.minor.rstrip('+')}.0-fake"
        return web.json_response({"major": "1", "minor": self.minor, "gitVersion": written})

    async def _say_groups(self, request):
        if (answer := await self._no_answer(request, "APIGroupList")) is not None:
            return answer
        served = sorted({resource.path.removeprefix("/apis/") for resource in self._resources if resource.group})
        groups = [
            {"name": each.partition("/")[0], "versions": [{"groupVersion": each, "version": each.partition("/")[2]}]}
            for each in served
        ]
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def _review(self, request):
        document = await request.json()
        kind, spec = document["kind"], document.get("spec", {})
        self.reviews.append((kind, spec))
        self._wake()
        if (answer := await self._no_answer(request, kind)) is not None:
            return answer
        if kind == "TokenReview":
            user = self.users.get(spec["token"])
            answer = {"authenticated": True, "user": user} if user else {"error": "token has expired"}
        elif kind == "SelfSubjectReview":
            answer = {"userInfo": {"username": self.identity, "groups": ["system:authenticated"]}}
        elif kind == "SelfSubjectAccessReview":
            answer = {"allowed": self.may(spec["resourceAttributes"])}
        else:
            answer = {"allowed": self.allowed(spec)}
        return web.json_response(document | {"status": answer}, status=201)

    async def _config_map(self, request):
        if (answer := await self._no_answer(request, "ConfigMap")) is not None:
            return answer
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if (namespace, name) not in self.config_maps:
            return status(404, "NotFound", f'configmaps "{name}" not found')
        metadata = {"namespace": namespace, "name": name}
        return web.json_response({"metadata": metadata, "data": self.config_maps[namespace, name]})

    async def _api_service(self, request):
        if (answer := await self._no_answer(request, "APIService")) is not None:
            return answer
        name = request.match_info["name"]
        if name not in self.api_services:
            return status(404, "NotFound", f'apiservices.apiregistration.k8s.io "{name}" not found')
        return web.json_response({"metadata": {"name": name}, "spec": self.api_services[name]})

    async def _get_lease(self, request):
        if (answer := await self._no_answer(request, "Lease")) is not None:
            return answer
        key = request.match_info["namespace"], request.match_info["name"]
        if key not in self.leases:
            return status(404, "NotFound", f'leases.coordination.k8s.io "{key[1]}" not found')
        return web.json_response(self.shown_lease(self.leases[key]))

    async def _create_lease(self, request):
        if (answer := await self._no_answer(request, "Lease")) is not None:
            return answer
        document = await request.json()
        key = request.match_info["namespace"], document["metadata"]["name"]
        if key in self.leases:
            return status(409, "AlreadyExists", f'leases.coordination.k8s.io "{key[1]}" already exists')
        return self._keep_lease(key, document, 201)

    async def _update_lease(self, request):
        if (answer := await self._no_answer(request, "Lease")) is not None:
            return answer
        document = await request.json()
        key = request.match_info["namespace"], request.match_info["name"]
        if key not in self.leases:
            return status(404, "NotFound", f'leases.coordination.k8s.io "{key[1]}" not found')
        if document["metadata"].get("resourceVersion") != self.leases[key]["metadata"]["resourceVersion"]:
            words = (
                f'Operation cannot be fulfilled on leases.coordination.k8s.io "{key[1]}": the object has been modified'
            )
            return status(409, "Conflict", words)
        return self._keep_lease(key, document, 200)

    def _keep_lease(self, key, document, code):
        if document["spec"]["leaseDurationSeconds"] < 1:
            return status(422, "Invalid", "spec.leaseDurationSeconds: Invalid value: must be greater than 0")
        with self._lock:
            self._version += 1
            document["metadata"]["resourceVersion"] = str(self._version)
            self.leases[key] = document
        self.lease_writes.append((*key, document["spec"]["holderIdentity"]))
        self._wake()
        return web.json_response(document, status=code)

    async def _create_event(self, request):
        if (answer := await self._no_answer(request, "Event")) is not None:
            return answer
        document, namespace = await request.json(), request.match_info["namespace"]
        if wrong := wrong_event(document, namespace):
            return status(422, "Invalid", f"Event.events.k8s.io is invalid: {wrong}")
        if namespace in self.ending:
            words = f"unable to create new content in namespace {namespace} because it is being terminated"
            said = status_object(403, "Forbidden", f'events.events.k8s.io "chat-" is forbidden: {words}')
            cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
            return web.json_response({**said, "details": {"causes": [cause]}}, status=403)
        with self._lock:
            self._version += 1
            metadata = document["metadata"]
            # apiserver/pkg/storage/names: 58 characters of the base and five of its own.
            metadata["name"] = f"{metadata.pop('generateName')[:58]}{self._version:05d}"
            metadata["resourceVersion"] = str(self._version)
            self.events[namespace, metadata["name"]] = document
        return self._event_written("create", document, 201)

    async def _patch_event(self, request):
        if (answer := await self._no_answer(request, "Event")) is not None:
            return answer
        patch, key = await request.json(), (request.match_info["namespace"], request.match_info["name"])
        if request.content_type != "application/merge-patch+json":
            return status(415, "UnsupportedMediaType", f"this fake takes merge patches, not {request.content_type}")
        if key not in self.events:
            return status(404, "NotFound", f'events.events.k8s.io "{key[1]}" not found')
        if set(patch) != {"series"}:
            return status(422, "Invalid", "field is immutable")
        if patch["series"]["count"] < 2:
            return status(422, "Invalid", "series.count: Invalid value: should be at least 2")
        document = self.events[key] = {**self.events[key], "series": patch["series"]}
        return self._event_written("patch", document, 200)

    def _event_written(self, verb, document, code):
        self.event_writes.append((verb, document))
        self._wake()
        return web.json_response(document, status=code)

    async def _no_answer(self, request, kind):
        """The trouble with questions that are neither list nor watch; `fail("TokenReview", 500)` makes some."""
        self.shown.append(request.headers.get("Authorization"))
        self._wake()
        while self._hanging:
            await self._turn.wait()
        if self._refusing:
            request.transport.abort()
            return web.Response()
        if kind in self._failing:
            code, retry_after = self._failing[kind]
            return status(code, "Failed", f"a fake failure {code}", retry_after)
        return None

    async def _answer(self, request):
        path = request.path.rpartition("/")[0].partition("/namespaces/")[0]
        name, namespace = request.match_info["name"], request.match_info.get("namespace")
        resource = next((r for r in KINDS if (r.path, r.name) == (path, name)), None)
        query = dict(request.query)
        verb = "watch" if query.get("watch") in {"1", "true"} else "list"
        asked = Asked(
            verb,
            resource,
            namespace,
            query.get("resourceVersion", ""),
            query.get("continue", ""),
            query,
            dict(request.headers),
        )
        if resource is not None:
            self.requests.append(asked)
            self._wake()
        # Rights first: to whom they do not name a kind, a real one says 403 of what it does not have.
        if resource not in self._resources and (verb, resource) not in self._forbidden:
            return web.Response(status=404, text="404 page not found\n")
        while self._hanging:
            await self._turn.wait()
        return self._trouble(request, asked) or await (self._watch if verb == "watch" else self._list)(request, asked)

    def _trouble(self, request, asked):
        if self._refusing:
            request.transport.abort()
            return web.Response()
        token = asked.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("bearer ")
        if self.tokens is not None and token not in self.tokens:
            return status(401, "Unauthorized", "Unauthorized")
        if (asked.verb, asked.resource) in self._forbidden:
            where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
            user = "system:serviceaccount:tidegate:tidegate"
            words = f'{asked.resource} is forbidden: User "{user}" cannot {asked.verb} resource "{asked.resource.name}"'
            return status(403, "Forbidden", f'{words} in API group "{asked.resource.group}" {where}')
        if asked.resource in self._failing:
            code, retry_after = self._failing[asked.resource]
            return status(code, "Failed", f"a fake failure {code}", retry_after)
        return None

    async def _list(self, _request, asked):
        if self._slow_s:
            await asyncio.sleep(self._slow_s)
        with self._lock:
            if asked.after and asked.after not in self._checkpoints:
                return status(410, "Expired", "The provided continue parameter is too old")
            version, left = self._checkpoints.pop(asked.after) if asked.after else (self._version, self._all(asked))
            most = min(int(asked.query.get("limit", len(left))), self.page_objects or len(left))
            page, left = left[:most], left[most:]
            after = f"{version}-{asked.resource.name}-{len(left)}=" if left else ""
            if after:
                self._checkpoints[after] = (version, left)
        partial = PARTIAL in asked.headers.get("Accept", "")
        metadata = {"resourceVersion": str(version)} | ({"continue": after} if after else {})
        return web.json_response(
            {
                "kind": "PartialObjectMetadataList" if partial else f"{asked.resource.kind}List",
                "apiVersion": "meta.k8s.io/v1" if partial else asked.resource.path.removeprefix("/apis/"),
                "metadata": metadata | ({"remainingItemCount": len(left)} if left else {}),
                "items": [partly(d) if partial else listed(asked.resource, d) for d in page],
            }
        )

    def _all(self, asked):
        """Every object of the list, in the order of namespace and name, as it is now."""
        found = sorted(
            (
                (namespace or "", name, document)
                for (resource, namespace, name), document in self._objects.items()
                if resource == asked.resource and asked.namespace in {None, namespace}
            ),
            key=lambda each: each[:2],
        )
        return [deepcopy(document) for _, _, document in found]

    async def _watch(self, request, asked):
        version = int(asked.version or self._version)
        gone = version < self._forgotten
        if gone and not self.gone_in_stream:
            return status(410, "Expired", f"too old resource version: {version} ({self._forgotten})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if gone:
            error = status_object(410, "Expired", f"too old resource version: {version} ({self._forgotten})")
            await response.write(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")
            return response
        self.watching += 1
        self._wake()
        try:
            await self._tell_watch(request, response, asked, version)
        finally:
            self.watching -= 1
            self._wake()
        return response

    async def _tell_watch(self, request, response, asked, version):
        """Tell it what happened since `version`, and what happens, until somebody cuts it."""
        cut, told, began = self._cut, 0, len(self._history)
        while True:
            turn = self._turn
            if self._cut != cut:
                if self._mid_line:
                    await response.write(b'{"type":"MODIFIED","object":{"kind":"Po')
                    request.transport.close()
                return
            while told < len(self._history) and not self._hanging:
                happened, news = self._history[told], told >= began
                told += 1
                if news or (happened.version > version and happened.type not in {"BOOKMARK", "RAW"}):
                    await self._write(response, asked, happened)
            await turn.wait()

    async def _write(self, response, asked, happened):
        if happened.resource not in {None, asked.resource} or (
            happened.namespace is not None and asked.namespace not in {None, happened.namespace}
        ):
            return
        if happened.type == "RAW":
            await response.write(happened.document + b"\n")
            return
        document = happened.document
        if happened.type == "BOOKMARK":
            if asked.query.get("allowWatchBookmarks") not in {"1", "true"}:
                return
            metadata = {"resourceVersion": str(happened.version), "creationTimestamp": None}
            document = {"kind": asked.resource.kind, "metadata": metadata}
        elif PARTIAL in asked.headers.get("Accept", ""):
            document = partly(document)
        await response.write(json.dumps({"type": happened.type, "object": document}).encode() + b"\n")


def status(code, reason, message, retry_after=None):
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else None
    return web.json_response(status_object(code, reason, message), status=code, headers=headers)


# apimachinery/pkg/api/validation: of a prefix only a dash may stand last, so "chat." is refused.
SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def wrong_event(document, namespace):
    """What Kubernetes' validation of events.k8s.io/v1 would not have; None: nothing (pkg/apis/core/validation)."""
    needed = ("eventTime", "reportingController", "reportingInstance", "action", "reason", "regarding")
    missing = [key for key in needed if not document.get(key)]
    if missing:
        return f"{missing[0]}: Required value"
    if not re.fullmatch(SUBDOMAIN, re.sub("-$", "a", document["metadata"]["generateName"])):
        return "metadata.generateName: Invalid value: a lowercase RFC 1123 subdomain"
    if document["metadata"]["namespace"] != namespace or document["regarding"].get("namespace") != namespace:
        return "involvedObject.namespace: Invalid value: does not match event.namespace"
    if document["type"] not in {"Normal", "Warning"}:
        return "type: Invalid value: has invalid value"
    if len(document["note"].encode()) > 1024:
        return "message: Invalid value: can have at most 1024 characters"
    if max(len(document[key]) for key in ("action", "reason", "reportingInstance")) > 128:
        return "reason: Invalid value: can have at most 128 characters"
    return None


@asynccontextmanager
async def serving(fake=None, *, ssl_context=None):
    """The fake, at `fake.url`, until the block ends."""
    fake = fake or FakeKubernetes()
    runner = web.AppRunner(fake.application(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
    fake.port = runner.addresses[0][1]
    fake.scheme = "https" if ssl_context else "http"
    fake._loop = asyncio.get_running_loop()
    try:
        yield fake
    finally:
        fake._loop = None
        await runner.cleanup()


@contextmanager
def serving_in_thread(fake=None):
    """The same for a test without a loop."""
    fake = fake or FakeKubernetes()
    up, stop = threading.Event(), asyncio.Event()

    async def serve():
        async with serving(fake):
            up.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="fake Kubernetes")
    thread.start()
    try:
        assert up.wait(PATIENCE_S), "the fake did not start"
        yield fake
    finally:
        if (loop := fake._loop) is not None:
            loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)


def write_kubeconfig(path, url, *, token=None):
    """A kubeconfig file at `path` whose only context, `fake`, is the API at `url`; and its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
