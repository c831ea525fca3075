"""A stand-in for the Kubernetes API over loopback. Every response carries `Server: fake-kubernetes`.

It stores objects, lists them in pages, and sends watch events, with versions, bookmarks, 410 and 404 as the real API
server does. On request it fails as real ones do. It records every request in `requests`. `tests.fakes.objects` builds
the objects. Leases are written through HTTP, with 409 on a conflict. Events are validated as the real API server
validates those of events.k8s.io/v1. Not modelled: other writes, admission, RBAC rules, garbage collection, and the end
of a watch by its timeoutSeconds.

Beside a test: `async with serving() as fake`. For a daemon in a separate process, with an event loop in a separate
thread: `with serving_in_thread() as fake`, and `write_kubeconfig(path, fake.url)`. Methods that change it may be called
in any thread.
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

from exporter.kubernetes.resources import CHECKED, RESOURCES, SHARED, Resource

from .objects import listed, partly, status_object

PATIENCE_S = 60.0  # never reached: only shows which await hung
PARTIAL = "as=PartialObjectMetadata"


OLDER = tuple(each.before for each in SHARED if each.before is not None)  # other versions of the same kinds
KINDS = (*RESOURCES, *SHARED, *OLDER, *(each for each in CHECKED if each not in RESOURCES))


class Request(NamedTuple):
    """A received request. verb: "list" (one per page of the list) or "watch"."""

    verb: str
    resource: Resource
    namespace: str | None
    version: str
    after: str
    query: dict
    headers: dict


class WatchEvent(NamedTuple):
    """A line of every watch that it concerns. resource: None concerns all watches."""

    version: int
    type: str
    resource: Resource | None
    namespace: str | None
    document: dict | bytes


class FakeKubernetes:
    def __init__(self, resources=(*RESOURCES, *SHARED)):
        """`resources`: the kinds that this cluster has; see `install`."""
        self.port = 0
        self.scheme = "http"
        self.requests = []
        self.watching = 0  # open watches
        self.page_objects = None  # upper bound of objects on one page, whatever `limit` asks for
        self.gone_in_stream = True  # 410 for a watch: as ERROR event (like the watch cache), else as HTTP status
        self.tokens = None  # accepted bearer tokens; None accepts any
        self.users = {}  # token: `status.user` of its TokenReview
        self.allowed = lambda spec: False  # the result of a SubjectAccessReview, by its spec
        self.may = lambda attributes: True  # the result of a SelfSubjectAccessReview, by its resource attributes
        self.identity = "system:serviceaccount:tidegate:tidegate"  # the user of every request
        self.minor = "37"  # minor version of Kubernetes
        self.date = None  # value of the Date header; None: the present
        self.config_maps = {}  # (namespace, name): data
        self.api_services = {}  # name: spec
        self.leases = {}  # (namespace, name): document
        self.shown_lease = lambda document: document  # what a reader of a Lease gets
        self.lease_writes = []  # (namespace, name, holder) of each accepted write
        self.events = {}  # (namespace, name): document
        self.ending = set()  # namespaces that are being deleted, and reject new objects
        self.event_writes = []  # (verb, document at that moment) of each accepted write
        self.reviews = []  # (kind, spec) of each review, as received
        self.shown = []  # the Authorization header of each request that is neither list nor watch
        self._resources = set(resources)
        self._objects = {}  # (resource, namespace, name): document
        self._version, self._forgotten = 1000, 1000
        self._history = []
        self._checkpoints = {}  # continue token: (version, remaining documents)
        self._lock = threading.RLock()
        self._loop = None
        self._turn = asyncio.Event()
        self._cut, self._mid_line = 0, False
        self.mend()

    # Changes of the cluster

    def put(self, *documents):
        """Create or change these objects."""
        with self._lock:
            for document in documents:
                key = self._key(document)
                self._happen("MODIFIED" if key in self._objects else "ADDED", key, deepcopy(document))
        self._changed()

    def delete(self, *documents):
        """Delete these objects, by kind, namespace and name."""
        with self._lock:
            for document in documents:
                key = self._key(document)
                self._happen("DELETED", key, self._objects.pop(key))
        self._changed()

    def install(self, *resources):
        """Add these kinds to the cluster, as applying a CRD does."""
        self._resources.update(resources)

    def uninstall(self, *resources):
        """Remove these kinds and their objects; watches of them end."""
        with self._lock:
            self._resources.difference_update(resources)
            self._objects = {key: document for key, document in self._objects.items() if key[0] in self._resources}
        self.disconnect()

    # Failures of the API server

    def bookmark(self):
        """Send a bookmark to every watch, as the real API server does about once a minute."""
        self._append(WatchEvent(self._version, "BOOKMARK", None, None, b""))

    def send_line(self, resource, line):
        """Send this line, in bytes, to every watch of the resource."""
        self._append(WatchEvent(self._version, "RAW", resource, None, line))

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
        """Accept connections and requests, but send nothing, on open watches neither."""
        self._hanging = True
        self._changed()

    def refuse(self):
        """Drop every connection without a response, including those of watches."""
        self._refusing = True
        self.disconnect(mid_line=True)

    def slow_lists(self, seconds):
        self._slow_s = seconds

    def forbid(self, resource, *verbs):
        """Answer 403 to list and watch, or to one of them."""
        self._forbidden |= {(verb, resource) for verb in verbs or ("list", "watch")}

    def forbid_namespace(self, namespace):
        """Answer 403 to every list and watch of it, as if it were deleted together with its Role."""
        self._forbidden_namespaces.add(namespace)

    def fail(self, resource, status, retry_after=None):
        """Answer requests for it with this status."""
        self._failing[resource] = (status, retry_after)

    def mend(self):
        """End all failures."""
        self._hanging = self._refusing = False
        self._slow_s = 0.0
        self._forbidden = set()
        self._forbidden_namespaces = set()
        self._failing = {}
        self._changed()

    # What a test reads

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def version(self):
        return str(self._version)

    def requests_for(self, verb=None, resource=None):
        """The requests so far, filtered by verb and resource."""
        return [a for a in self.requests if verb in {None, a.verb} and resource in {None, a.resource}]

    @property
    def lists(self):
        """Number of lists begun, regardless of their pages."""
        return len([a for a in self.requests_for("list") if not a.after])

    async def until(self, is_so):
        """Wait until `is_so()`, called again after each request and each change. Only in the fake's own loop."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await self._turn.wait()

    # Implementation

    @staticmethod
    def _key(document):
        named = [r for r in KINDS if r.kind == document["kind"]]
        resource = next((r for r in named if r.version == document["apiVersion"]), named[0] if named else None)
        assert resource is not None, f"{document['kind']} is of none of Tidegate's RESOURCES"
        return resource, document["metadata"].get("namespace"), document["metadata"]["name"]

    def _happen(self, what, key, document):
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        if what != "DELETED":
            self._objects[key] = document
        self._history.append(WatchEvent(self._version, what, key[0], key[1], document))

    def _append(self, event):
        with self._lock:
            self._history.append(event)
        self._changed()

    def _changed(self):
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self):
        self._turn.set()
        self._turn = asyncio.Event()

    def application(self):
        app = web.Application()
        app.router.add_get("/version", self._get_version)
        app.router.add_get("/apis", self._get_groups)
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

    async def _get_version(self, request):
        if (answer := await self._no_answer(request, "Version")) is not None:
            return answer
        written = f"v1.{self.minor.rstrip('+')}.0-fake"
        return web.json_response({"major": "1", "minor": self.minor, "gitVersion": written})

    async def _get_groups(self, request):
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
            message = (
                f'Operation cannot be fulfilled on leases.coordination.k8s.io "{key[1]}": the object has been modified'
            )
            return status(409, "Conflict", message)
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
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            denial = status_object(403, "Forbidden", f'events.events.k8s.io "chat-" is forbidden: {message}')
            cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
            return web.json_response({**denial, "details": {"causes": [cause]}}, status=403)
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
        """The failure of a request that is neither list nor watch, as set by, for example, `fail("TokenReview", 500)`.
        Returns None if there is none.
        """
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
        call = Request(
            verb,
            resource,
            namespace,
            query.get("resourceVersion", ""),
            query.get("continue", ""),
            query,
            dict(request.headers),
        )
        if resource is not None:
            self.requests.append(call)
            self._wake()
        # Authorization comes first: without the right to a kind, a real API server answers 403 even if it lacks the
        # kind.
        if resource not in self._resources and (verb, resource) not in self._forbidden:
            return web.Response(status=404, text="404 page not found\n")
        while self._hanging:
            await self._turn.wait()
        return self._problem(request, call) or await (self._watch if verb == "watch" else self._list)(request, call)

    def _problem(self, request, call):
        if self._refusing:
            request.transport.abort()
            return web.Response()
        token = call.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("bearer ")
        if self.tokens is not None and token not in self.tokens:
            return status(401, "Unauthorized", "Unauthorized")
        if (call.verb, call.resource) in self._forbidden or call.namespace in self._forbidden_namespaces:
            where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
            user = "system:serviceaccount:tidegate:tidegate"
            denied = f'{call.resource} is forbidden: User "{user}" cannot {call.verb} resource "{call.resource.name}"'
            return status(403, "Forbidden", f'{denied} in API group "{call.resource.group}" {where}')
        if call.resource in self._failing:
            code, retry_after = self._failing[call.resource]
            return status(code, "Failed", f"a fake failure {code}", retry_after)
        return None

    async def _list(self, _request, call):
        if self._slow_s:
            await asyncio.sleep(self._slow_s)
        with self._lock:
            if call.after and call.after not in self._checkpoints:
                return status(410, "Expired", "The provided continue parameter is too old")
            version, left = self._checkpoints.pop(call.after) if call.after else (self._version, self._all(call))
            most = min(int(call.query.get("limit", len(left))), self.page_objects or len(left))
            page, left = left[:most], left[most:]
            after = f"{version}-{call.resource.name}-{len(left)}=" if left else ""
            if after:
                self._checkpoints[after] = (version, left)
        partial = PARTIAL in call.headers.get("Accept", "")
        metadata = {"resourceVersion": str(version)} | ({"continue": after} if after else {})
        return web.json_response(
            {
                "kind": "PartialObjectMetadataList" if partial else f"{call.resource.kind}List",
                "apiVersion": "meta.k8s.io/v1" if partial else call.resource.path.removeprefix("/apis/"),
                "metadata": metadata | ({"remainingItemCount": len(left)} if left else {}),
                "items": [partly(d) if partial else listed(call.resource, d) for d in page],
            }
        )

    def _all(self, call):
        """Every object of the list as it is now, ordered by namespace and name."""
        found = sorted(
            (
                (namespace or "", name, document)
                for (resource, namespace, name), document in self._objects.items()
                if resource == call.resource and call.namespace in {None, namespace}
            ),
            key=lambda each: each[:2],
        )
        return [deepcopy(document) for _, _, document in found]

    async def _watch(self, request, call):
        version = int(call.version or self._version)
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
            await self._send_events(request, response, call, version)
        finally:
            self.watching -= 1
            self._wake()
        return response

    async def _send_events(self, request, response, call, version):
        """Send the events since `version` and all further ones, until `disconnect`."""
        cut, sent, began = self._cut, 0, len(self._history)
        while True:
            turn = self._turn
            if self._cut != cut:
                if self._mid_line:
                    await response.write(b'{"type":"MODIFIED","object":{"kind":"Po')
                    request.transport.close()
                return
            while sent < len(self._history) and not self._hanging:
                event, news = self._history[sent], sent >= began
                sent += 1
                if news or (event.version > version and event.type not in {"BOOKMARK", "RAW"}):
                    await self._write(response, call, event)
            await turn.wait()

    async def _write(self, response, call, event):
        if event.resource not in {None, call.resource} or (
            event.namespace is not None and call.namespace not in {None, event.namespace}
        ):
            return
        if event.type == "RAW":
            await response.write(event.document + b"\n")
            return
        document = event.document
        if event.type == "BOOKMARK":
            if call.query.get("allowWatchBookmarks") not in {"1", "true"}:
                return
            metadata = {"resourceVersion": str(event.version), "creationTimestamp": None}
            document = {"kind": call.resource.kind, "metadata": metadata}
        elif PARTIAL in call.headers.get("Accept", ""):
            document = partly(document)
        await response.write(json.dumps({"type": event.type, "object": document}).encode() + b"\n")


def status(code, reason, message, retry_after=None):
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else None
    return web.json_response(status_object(code, reason, message), status=code, headers=headers)


# apimachinery/pkg/api/validation: a prefix may end in a dash but in no other punctuation, so "chat." is refused.
SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def wrong_event(document, namespace):
    """The error that Kubernetes' validation of events.k8s.io/v1 finds, or None (pkg/apis/core/validation)."""
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
    """The same for a test without an event loop."""
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
    """Write a kubeconfig file to `path` with one context, `fake`, for the API at `url`. Returns the path."""
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
