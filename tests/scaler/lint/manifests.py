"""Manifests for tests of the linter: free of problems until a test changes one part."""

import re

_EXAMPLE = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sides(page):
    """The example of a rule's page: the text before and after the fix."""
    (example,) = _EXAMPLE.findall(page)
    lines = example.splitlines(keepends=True)
    assert all(line[:2] in {"  ", "- ", "+ "} for line in lines)
    return tuple("".join(line[2:] for line in lines if line[0] in f" {mark}") for mark in "-+")


WINDOW = "advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 30}}}}"


def scaled(metadata="engine: vllm", *, name="chat", namespace="ai", spec="", minimum=1, maximum=8, more=WINDOW):
    """A ScaledObject with a trigger of Tidegate."""
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{namespace: {namespace}, name: {name}}}
spec:
  scaleTargetRef: {{name: chat}}
  minReplicaCount: {minimum}
  maxReplicaCount: {maximum}
  cooldownPeriod: 30
  {more}
  {spec}
  triggers: [{{type: external-push, metadata: {{scalerAddress: "tidegate:6000", {metadata}}}}}]
"""


def asking(query, threshold="16", *, minimum=1, keda=""):
    """A ScaledObject with a Prometheus trigger; line 12 is the query, which begins in column 16."""
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{namespace: ai, name: chat}}
spec:
  scaleTargetRef: {{name: chat}}
  minReplicaCount: {minimum}
  maxReplicaCount: 8
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus:9090
        query: '{query}'
        threshold: "{threshold}"
        ignoreNullValues: "false"
        {keda}
"""


def deployed(
    container="", *, image="vllm/vllm-openai:v0.11.0", args="[--model=m]", gpu="nvidia.com/gpu", spec="", pod="",
    annotations="", namespace="ai", ends="lifecycle: {preStop: {sleep: {seconds: 15}}}",
    ready="readinessProbe: {httpGet: {path: /health, port: 8000}}", grace="terminationGracePeriodSeconds: 120",
):  # fmt: skip
    """A Deployment of one container on a GPU, with a readiness probe and a graceful shutdown."""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{namespace: {namespace}, name: chat, annotations: {{{annotations}}}}}
spec:
  selector: {{matchLabels: {{app: chat}}}}
  {spec}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec:
      {grace}
      {pod}
      containers:
        - name: engine
          image: {image}
          args: {args}
          {ready}
          {ends}
          {container}
          resources: {{limits: {{{gpu}: 1}}}}
"""


def hpa(metrics, *, minimum=1, name="chat", behavior=""):
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{namespace: ai, name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: chat}}
  minReplicas: {minimum}
  maxReplicas: 8
  metrics: [{metrics}]
  {behavior}
"""


CPU = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}"
OURS = (
    "{type: External, external: {metric: {name: tidegate-replicas}, target: {type: AverageValue, averageValue: '1'}}}"
)
