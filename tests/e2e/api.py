"""The Kubernetes API as plain JSON, over the official client, which supports all kinds of kubeconfig.

Worked example: `api.get("/api/v1/namespaces/ai")` is a document, or None if there is no such object; `api.post(path,
document)` creates one. Any other failure is an `ApiFailure` with the server's message.
"""

import json
from http import HTTPStatus
from urllib.parse import quote

from kubernetes import client, config

TIMEOUT_S = 30.0
SUCCESS = range(200, 300)


class ApiFailure(AssertionError):  # noqa: N818 - as in exporter.kubernetes.protocol
    def __init__(self, method, path, status, text):
        super().__init__(f"{method} {path}: {status} {text[:600]}")
        self.status = status


class Api:
    """Access with the kubeconfig's credentials or a bearer token."""

    def __init__(self, kubeconfig):
        self._client = config.new_client_from_config(str(kubeconfig))
        assert self._client.configuration.verify_ssl, f"{kubeconfig}: insecure-skip-tls-verify: name the CA instead"
        self._server = self._client.configuration.host
        self._headers = {}

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
        other._headers = {"Authorization": f"Bearer {token}"}
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
