"""Generates values.schema.json and the table of values in the chart's README from values.yaml and the configuration's
model.

It defines the types of the chart's values; their descriptions are the `# --` comments of values.yaml. The schema of
`config` is Tidegate's own, so `helm install` rejects what `tidegate run` would reject. Only `listen` and `state` are
not in it, because the chart writes them. Constraints between values are checked in the templates.

Worked example: `config: {scrape: {intervall: 5s}}` in a values file fails `helm install` with "additional properties
'intervall' not allowed".

    python deploy/values_schema.py    # writes both files; a test compares them
"""  # noqa: INP001 - a script, beside its output

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scaler.config.scalars import HOST_NAME
from scaler.config.schema import json_schema

CHART = Path(__file__).parent / "chart"
BEGIN, END = "<!-- values: made by deploy/values_schema.py -->\n", "<!-- end of values -->\n"
DIALECT = "http://json-schema.org/draft-07/schema#"

Schema = dict[str, Any]

# Keys of the configuration that the chart writes itself, and the sections that only those keys use.
CHART_KEYS = ("listen", "state")
CHART_SECTIONS = {"Listen", "GrpcTls", "MetricsApi", "Peers", "Checkpoints"}

# Helm's regular expressions are Go's, without lookahead: the schema accepts a little more there, and `tidegate run`
# rejects it. Most lookaheads forbid an empty text.
_LOOKS_AHEAD = re.compile(r"\(\?[=!][^()]*\)")

_KEY = re.compile(r"^( *)([A-Za-z]+):")
_COMMENT = re.compile(r"^ *# (?:-- )?")

TEXT: Schema = {"type": "string"}
URL = {"type": "string", "pattern": "^$|^https?://[^ ]*[^/ ]$"}
FLAG: Schema = {"type": "boolean"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 1}
MAPPING: Schema = {"type": "object"}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
MAPPINGS: Schema = {"type": "array", "items": {"type": "object"}}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _one_of(*choices: str) -> Schema:
    return {"type": "string", "enum": list(choices)}


_MONITOR = _object(
    enabled=FLAG, additionalLabels=STRINGS, interval=DURATION, relabelings=MAPPINGS, metricRelabelings=MAPPINGS
)

VALUES: Schema = _object(
    mode=_one_of("keda", "hpa"),
    config={"$ref": "#/$defs/Config"},
    listenHost={"type": "string", "minLength": 1},
    httpHosts={"type": "array", "items": {"type": "string", "pattern": HOST_NAME.schema["pattern"]}},
    replicas=COUNT,
    state=_object(
        volume=_one_of("emptyDir", "persistentVolumeClaim", "none"),
        interval=DURATION,
        size={"type": "string", "pattern": "^[0-9]+(Mi|Gi)$"},
        storageClassName=TEXT,
        existingClaim=TEXT,
    ),
    image=_object(
        repository={"type": "string", "minLength": 1},
        tag=TEXT,
        digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        pullPolicy=_one_of("Always", "IfNotPresent", "Never"),
    ),
    imagePullSecrets=MAPPINGS,
    nameOverride=TEXT,
    fullnameOverride=TEXT,
    commonLabels=STRINGS,
    tls=_object(
        type=_one_of("helm", "cert-manager", "existingSecret", "none"),
        keptByTool=FLAG,
        validDays=COUNT,
        existingSecret=TEXT,
        existingClientSecret=TEXT,
        certManager=_object(
            issuerRef=_object(group=TEXT, kind=_one_of("ClusterIssuer", "Issuer"), name=TEXT), duration=DURATION
        ),
    ),
    keda=_object(
        namespace={"type": "string", "minLength": 1},
        operatorLabels=STRINGS,
        clusterTriggerAuthentication=_object(create=FLAG, name=TEXT),
    ),
    metricsApi=_object(
        external=_object(enabled=FLAG),
        custom=_object(enabled=FLAG),
        port={"type": "integer", "minimum": 1024, "maximum": 65535},
        caBundle=TEXT,
    ),
    service=_object(
        type=_one_of("ClusterIP", "NodePort", "LoadBalancer"), grpcPort=PORT, httpPort=PORT, annotations=STRINGS
    ),
    serviceAccount=_object(create=FLAG, name=TEXT, annotations=STRINGS),
    rbac=_object(create=FLAG),
    resources=MAPPING,
    podSecurityContext=MAPPING,
    securityContext=MAPPING,
    startupProbe=MAPPING,
    livenessProbe=MAPPING,
    readinessProbe=MAPPING,
    terminationGracePeriodSeconds=COUNT,
    podAnnotations=STRINGS,
    podLabels=STRINGS,
    priorityClassName=TEXT,
    nodeSelector=STRINGS,
    tolerations=MAPPINGS,
    affinity=MAPPING,
    topologySpreadConstraints=MAPPINGS,
    podDisruptionBudget=_object(
        enabled=FLAG,
        maxUnavailable={"oneOf": [COUNT, {"type": "string", "pattern": "^[0-9]+%$"}]},
    ),
    networkPolicy=_object(enabled=FLAG, monitoring=MAPPINGS, egress=MAPPINGS),
    serviceMonitor=_MONITOR,
    podMonitor=_MONITOR,
    links=_object(docs=URL),
    prometheusRule=_object(enabled=FLAG, additionalLabels=STRINGS, groups=MAPPINGS),
    dashboards=_object(
        enabled=FLAG,
        namespace=TEXT,
        labels=STRINGS,
        annotations=STRINGS,
        folder=TEXT,
        json=STRINGS,
        maintainers=_object(enabled=FLAG, folder=TEXT),
    ),
    extraArgs={"type": "array", "items": TEXT},
    extraEnv=MAPPINGS,
    extraVolumes=MAPPINGS,
    extraVolumeMounts=MAPPINGS,
    extraObjects={"type": "array", "items": {"type": ["object", "string"]}},
)


class Value(NamedTuple):
    """A documented key of values.yaml. key: with dots. default: as YAML parses it."""

    key: str
    description: str
    default: Any


def described(text: str) -> Iterator[Value]:
    """Every key with a `# --` comment, in the order of the text."""
    document = yaml.safe_load(text)
    path: list[str] = []
    description: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("# --") or (description and line.lstrip().startswith("#")):
            description.append(_COMMENT.sub("", line))
            continue
        key = _KEY.match(line)
        if key is None:
            continue
        path[len(key[1]) // 2 :] = [key[2]]
        if description:
            default = document
            for part in path:
                default = default[part]
            yield Value(".".join(path), " ".join(description), default)
            description = []


def schema() -> Schema:
    """The JSON Schema of values.yaml. `global` is Helm's: a parent chart passes its values in it."""
    config = json_schema()
    definitions = config.pop("$defs")
    config = {key: value for key, value in config.items() if key in {"type", "additionalProperties", "properties"}}
    for key in CHART_KEYS:
        del config["properties"][key]
    # The same dict is used for several keys, each with its own description.
    values: Schema = json.loads(json.dumps(VALUES))
    for value in described((CHART / "values.yaml").read_text(encoding="utf-8")):
        _at(values, value.key)["description"] = value.description
    values["properties"]["global"] = MAPPING
    definitions = {name: part for name, part in definitions.items() if name not in CHART_SECTIONS}
    head = {"$schema": DIALECT, "title": "Values of Tidegate's chart"}
    return head | values | {"$defs": for_go(definitions | {"Config": config})}


def for_go(part: Any) -> Any:
    """The same schema with patterns that Helm supports."""
    if isinstance(part, list):
        return [for_go(each) for each in part]
    if not isinstance(part, dict):
        return part
    pattern = part.get("pattern")
    if isinstance(pattern, str) and _LOOKS_AHEAD.search(pattern):
        part = part | {"pattern": _LOOKS_AHEAD.sub("", pattern), "minLength": 1}
    return {key: for_go(value) for key, value in part.items()}


def table() -> str:
    """The table of values, in Markdown."""
    rows = ["| key | default | what it does |", "|---|---|---|"]
    rows += [
        f"| `{value.key}` | `{json.dumps(value.default)}` | {value.description} |"
        for value in described((CHART / "values.yaml").read_text(encoding="utf-8"))
    ]
    return "\n".join(rows) + "\n"


def readme(text: str) -> str:
    """The chart's README with the present table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


def _at(values: Schema, key: str) -> Schema:
    for part in key.split("."):
        values = values["properties"][part]
    return values


def main() -> None:
    (CHART / "values.schema.json").write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")
    file = CHART / "README.md"
    file.write_text(readme(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
