"""The Kubernetes API as plain JSON, over the official client, which supports all kinds of kubeconfig.

Worked example: `api.get("/api/v1/namespaces/ai")` is a document, or None if there is no such object; `api.post(path,
document)` creates one, and `api.create(document)` finds the path by itself. Any other failure is an `ApiFailure` with
the server's message.
"""

import json
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from kubernetes import client, config

TIMEOUT_S = 30.0
SUCCESS = range(200, 300)
ZERO_REFUSED = "this cluster refuses minReplicas: 0 (HPAScaleToZero is off)"


class ApiFailure(AssertionError):  # noqa: N818 - as in exporter.kubernetes.protocol
    def __init__(self, method, path, status, text):
        super().__init__(f"{method} {path}: {status} {text[:600]}")
        self.status = status

    @property
    def is_of_zero(self):
        """Whether an HPA's `minReplicas: 0` is refused."""
        return self.status == HTTPStatus.UNPROCESSABLE_ENTITY and "minReplicas" in str(self)


class Api:
    """Access with the kubeconfig's credentials or a bearer token."""

    def __init__(self, kubeconfig):
        self._client = config.new_client_from_config(str(kubeconfig))
        assert self._client.configuration.verify_ssl, f"{kubeconfig}: insecure-skip-tls-verify: name the CA instead"
        self._server = self._client.configuration.host
        self._headers = {}
        self._resources = {}  # by apiVersion, then by kind

    def access(self):
        """The server, as in a kubeconfig's `cluster`."""
        trust = self._client.configuration.ssl_ca_cert
        return {"server": self._server, **({"certificate-authority": str(Path(trust).resolve())} if trust else {})}

    def with_token(self, token):
        """The same server with this bearer token."""
        other = Api.__new__(Api)
        settings = client.Configuration()
        configured = self._client.configuration
        settings.host, settings.verify_ssl, settings.ssl_ca_cert = (
            configured.host,
            configured.verify_ssl,
            configured.ssl_ca_cert,
        )
        other._client, other._server = client.ApiClient(settings), self._server
        other._headers, other._resources = {"Authorization": f"Bearer {token}"}, self._resources
        return other

    def close(self):
        self._client.close()

    def request(self, method, path, body=None, *, kind="application/json", headers=None):
        """(status, document) of any response."""
        url = f"{self._server}{path}"
        sent = {"Accept": "application/json", "Content-Type": kind, **self._headers, **(headers or {})}
        self._client.update_params_for_auth(sent, [], ["BearerToken"], url, method, body)
        try:
            response = self._client.call_api(method, url, sent, body, _request_timeout=TIMEOUT_S)
            status, text = response.status, response.read().decode()
        except client.ApiException as error:
            status, text = error.status, error.body or ""
        try:
            return status, json.loads(text)
        except ValueError:
            return status, {"message": text}

    def get(self, path):
        status, document = self.request("GET", path)
        if status == HTTPStatus.NOT_FOUND:
            return None
        return self._good("GET", path, status, document)

    def items(self, path, **selectors):
        query = "&".join(f"{key}={quote(value)}" for key, value in selectors.items())
        return self._good("GET", path, *self.request("GET", f"{path}?{query}"))["items"]

    def post(self, path, document):
        return self._good("POST", path, *self.request("POST", path, document))

    def serves(self, document):
        """Whether the cluster has the object's kind."""
        return document["kind"] in self._kinds(document["apiVersion"])

    def collection(self, document):
        """The path of the list that the object belongs to."""
        version, metadata = document["apiVersion"], document["metadata"]
        resource = self._kinds(version)[document["kind"]]
        scope = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
        return f"{_root(version)}{scope}/{resource['name']}"

    def create(self, document, *, dry_run=False):
        """Create any object; an unknown field is an error. dry_run: everything but the write."""
        path = f"{self.collection(document)}?fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
        return self.post(path, document)

    def _kinds(self, version):
        if version not in self._resources:
            found = self.get(_root(version)) or {"resources": []}
            self._resources[version] = {each["kind"]: each for each in found["resources"] if "/" not in each["name"]}
        return self._resources[version]

    def put(self, path, document):
        return self._good("PUT", path, *self.request("PUT", path, document))

    def patch(self, path, change):
        """Merge; returns None if the object does not exist."""
        status, document = self.request("PATCH", path, change, kind="application/merge-patch+json")
        if status == HTTPStatus.NOT_FOUND:
            return None
        return self._good("PATCH", path, status, document)

    def delete(self, path, **options):
        """Delete; an object that does not exist is no error."""
        status, document = self.request("DELETE", path, options or None)
        if status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            self._good("DELETE", path, status, document)

    @staticmethod
    def _good(method, path, status, document):
        if status not in SUCCESS:
            raise ApiFailure(method, path, status, json.dumps(document))
        return document


def _root(version):
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
