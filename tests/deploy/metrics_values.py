"""Values that enable the metrics API, and its objects."""

EXTERNAL, CUSTOM = {"external": {"enabled": True}}, {"custom": {"enabled": True}}
BOTH = {"mode": "hpa", "metricsApi": EXTERNAL | CUSTOM}
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
TLS = {
    "helm": {},
    "cert-manager": {"certManager": {"issuerRef": {"name": "ca"}}},
    "existingSecret": {"existingSecret": "mine"},
}


def with_tls(kind, values):
    return values | {"tls": {"type": kind} | TLS[kind], "metricsApi": values["metricsApi"] | {"caBundle": PEM}}


def services(things):
    """Each APIService's spec, by its name."""
    return {each["metadata"]["name"]: each["spec"] for each in things if each["kind"] == "APIService"}
