"""The reference of triggers and annotations in Markdown: `python -m scaler.config.words_reference`.

A short head about what goes with a trigger, written here, and one table of the words, made from the model. It knows how
a row looks and nothing about any word.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .reference import kind_of, written
from .schema import defaults_of, schema_of
from .tenant import Trigger
from .trigger import WORDS, Word
from .words import sections_in

_HEAD = """\
# Triggers and annotations

<!-- Made by `python -m scaler.config.words_reference`. Change it there, and the words' docstrings in scaler/config. -->

With `kubernetes` in its [configuration](configuration.md#kubernetes) Tidegate finds workloads by itself: a trigger of a
ScaledObject, or annotations on what is scaled, are all that a team writes. `tidegate check scaledobject.yaml` says what
is wrong with them before they are applied, by [rules](rules/README.md) that each have a page.

## Two lines

```yaml
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {namespace: ai, name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 1
  maxReplicaCount: 8
  triggers:
    - type: external-push
      authenticationRef: {kind: ClusterTriggerAuthentication, name: tidegate}   # the chart's mTLS
      metadata: {scalerAddress: "tidegate.tidegate.svc:6000", engine: vllm}
```

The pods are those of the scale target, found through the Kubernetes API; the port and the path are the engine's usual
ones; the bounds are the ScaledObject's. That gives 1 to 8 replicas.

## A third line for zero

Something has to see the next request while no pod is there: `gateway` names it. The rest of this example is what goes
with Tidegate's numbers.

```yaml
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {namespace: ai, name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 0
  maxReplicaCount: 8
  pollingInterval: 10
  cooldownPeriod: 30               # it begins when keep_warm is over: Tidegate keeps warm, KEDA need not again
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:                    # Tidegate smooths; this is a backstop against one bad answer
        scaleUp: {stabilizationWindowSeconds: 0, tolerance: "0"}
        scaleDown:
          stabilizationWindowSeconds: 30
          tolerance: "0"           # Kubernetes 1.35 and later; leave both out on older clusters
          policies: [{type: Percent, value: 50, periodSeconds: 30}]
  triggers:
    - type: external-push          # push: a request at zero wakes at once, not at the next poll
      authenticationRef: {kind: ClusterTriggerAuthentication, name: tidegate}
      metadata:
        scalerAddress: "tidegate.tidegate.svc:6000"
        engine: vllm
        gateway: chat-epp
```

- **`gateway`** is the name of a Service in the same namespace, or of a gateway that the configuration shares with it.
  It is never an address: nothing that a trigger says is fetched.
- **Tolerance.** By default the HPA drops a step of 10 %, which from 10 replicas on is one replica. `tolerance: "0"`
  takes every step as it is. Before Kubernetes 1.35 there is none to set: a step up within the band of the HPA, as
  it is read from the cluster, is then told rounded outward, to the first number that is taken (at 10 replicas 12
  for 11), and a step down waits until it is larger than the band. Its maximum bounds it as ever.
- **`idleReplicaCount: 0`** with `minReplicaCount: 2` sleeps as well: none, or at least two.
- **No `fallback`.** Where Tidegate knows nothing it answers with an error, and KEDA keeps what there is. A fallback
  would wake every sleeper instead.
- **Several triggers** of one ScaledObject are workloads of their own; KEDA takes the largest.

## Shared gateways

One gateway in front of many namespaces is described once, by whoever runs Tidegate:

```yaml
kubernetes: {}
gateways:
  - name: epp
    namespaces: [ai, research]     # ["*"] is every one
    page: {service: epp.gateways, port: 9090}
```

A trigger in `ai` or `research` then says `gateway: epp`, and `model` for its own queue of it. What the page is, the
configuration says: `gateway_kind`, `gateway_port`, `gateway_path` and `gateway_scheme` do not go with it.

## Annotations

Without a ScaledObject the same words stand as annotations `tidegate.dev/...` on the Deployment, StatefulSet,
LeaderWorkerSet or Rollout itself; its pods' template is not read. The bounds are those of the HPA that scales it, else
`replicas.min` and `replicas.max`. A ScaledObject that scales the same object with a trigger of Tidegate stands before
them.

```yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: ai
  name: chat
  annotations:
    tidegate.dev/engine: vllm
    tidegate.dev/keep_warm: 10m
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {namespace: ai, name: chat}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 8
  metrics:
    - type: External
      external:
        metric: {name: tidegate-replicas, selector: {matchLabels: {workload: chat}}}
        target: {type: AverageValue, averageValue: "1"}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, tolerance: "0"}
    scaleDown:
      stabilizationWindowSeconds: 30
      tolerance: "0"
      policies: [{type: Percent, value: 50, periodSeconds: 30}]
```

The HPA asks [the metrics API](metrics-api.md): Tidegate's own, or an adapter that serves its `/metrics` under that
name. With `tidegate.dev/mode: observe` a workload is decided and published, and whoever asks for its number
gets an error: a way to look on first.

A brake (`tidegate.dev/brake`) stands on a ScaledObject or on what is scaled, whoever else speaks for it; it and
`schedules` have [a page of their own](../how-to/overrides.md).

## The words

All values are strings, as Kubernetes wants them: `"16"`, `"5m"`, `"null"`. They are read as the
[configuration](configuration.md) reads them; an unknown key is an error. KEDA's own keys (`scalerAddress`, `enableTLS`,
`unsafeSsl`, ...) stand beside them; `...FromEnv` of a word is not resolved.

| key | is | default | what it does | where |
|---|---|---|---|---|
"""


def words_reference() -> str:
    return _HEAD + "".join(f"{row}\n" for row in _rows())


def _rows() -> Iterator[str]:
    schema = schema_of(Trigger)
    for word in WORDS.values():
        properties, section = schema["properties"], Trigger
        *way, last = word.loc
        for part in way:
            section = next(sections_in(section.model_fields[part].annotation))
            properties = schema["$defs"][section.__name__]["properties"]
        default = written(defaults_of(section).get(last))
        yield f"| `{word.name}` | {kind_of(properties[last], None)} | {default} | {_text(word)} | {_where(word)} |"


def _text(word: Word) -> str:
    return " ".join((word.field.description or "").split()).replace("|", "\\|")


def _where(word: Word) -> str:
    return " and ".join(word.places)


if __name__ == "__main__":
    sys.stdout.write(words_reference())
