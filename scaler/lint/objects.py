"""The objects of one run: what kind each is, what it is called, and which file it stands in. Pure.

A kind is known by its API group too: a `Rollout` of somebody else's group is no Rollout. Namespaces that are left
out are `default` to everybody alike.

Worked example: the document `{apiVersion: apps/v1, kind: Deployment, metadata: {name: chat}}` of the file `a.yaml` is
`Thing(..., file="a.yaml", kind="Deployment", namespace="default", name="chat")`, and reads "Deployment default/chat".

JSON as the Kubernetes API answers it -> the same values that manifests are read into. Pure.

There are no lines to go to: every place is the same, and whoever shows a problem leaves it out.

Worked example: of `{"spec": {"replicas": 2}}` the value at `spec.replicas` has the text "2" and is no string.

What is scaled, as its pods will be: containers, which engine they run, how they start and end. Pure.

An engine is known by the command that starts it or by the image's name; a container that cannot be told is none.

Worked example: a container with the image `vllm/vllm-openai:v0.11.0` and `args: [--max-num-seqs=64]` is a `Container`
with `engine` "vllm" and `option("--max-num-seqs")` "64".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from scaler.config.errors import Loc
from scaler.config.yaml import DocumentValue, TextPosition

# Of each kind that a rule reads, its API group; "" is the core's.
KINDS: Mapping[str, str] = {
    "ScaledObject": "keda.sh",
    "ScaledJob": "keda.sh",
    "HorizontalPodAutoscaler": "autoscaling",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "Rollout": "argoproj.io",
    "PodDisruptionBudget": "policy",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
    "ServiceMonitor": "monitoring.coreos.com",
    "PodMonitor": "monitoring.coreos.com",
}
# A Prometheus' own configuration, which says of no kind that it is.
PROMETHEUS = "Prometheus configuration"
_SCRAPES = re.compile(r"^[\"']?scrape_configs[\"']?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Thing:
    """One object. kind: "" for what no rule reads."""

    value: DocumentValue
    file: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What the cluster knows it by: the same twice is one object."""
        return self.kind, self.namespace, self.name


def is_prometheus(text: str) -> bool:
    return _SCRAPES.search(text) is not None


def things(document: DocumentValue, file: str) -> Iterator[Thing]:
    """The objects of a document: itself, or those of a List; none of an empty one."""
    kind, version = document.read("kind"), document.read("apiVersion")
    if kind == "List":
        for item in document.items("items"):
            yield from things(item, file)
    elif document.entries():  # an empty document is what two `---` in a row make
        group = version.rpartition("/")[0]
        if not kind and document.at("scrape_configs") is not None:
            kind = PROMETHEUS
        yield Thing(
            document,
            file,
            kind if KINDS.get(kind) == group or kind == PROMETHEUS else "",
            document.read("metadata", "namespace") or "default",
            document.read("metadata", "name"),
        )


_NOWHERE = yaml.Mark("", 0, 0, 0, None, 0)
_TAG = "tag:yaml.org,2002:"
_PLACE = TextPosition(1, 1)


def value_of(document: dict[str, Any]) -> DocumentValue:
    return DocumentValue(_node(document), _PLACE)


def _node(said: Any) -> yaml.Node:
    if isinstance(said, dict):
        pairs = [(_scalar("str", str(key)), _node(one)) for key, one in said.items()]
        return yaml.MappingNode(f"{_TAG}map", pairs, _NOWHERE, _NOWHERE)
    if isinstance(said, list):
        return yaml.SequenceNode(f"{_TAG}seq", [_node(one) for one in said], _NOWHERE, _NOWHERE)
    match said:
        case str():
            return yaml.ScalarNode(f"{_TAG}str", said, _NOWHERE, _NOWHERE, style='"')
        case bool():
            return _scalar("bool", "true" if said else "false")
        case None:
            return _scalar("null", "null")
        case int():
            return _scalar("int", str(said))
    return _scalar("float", str(said))


def _scalar(tag: str, text: str) -> yaml.Node:
    return yaml.ScalarNode(_TAG + tag, text, _NOWHERE, _NOWHERE)


SCALED = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout")
# As `exporter.kubernetes.decode`: whole GPUs, shared ones, MIG profiles; AMD's GPUs and their partitions. And other
# vendors'
# by the names of their device plugins.
_GPU = re.compile(
    r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|amd\.com/(?:gpu(?:\..+)?|[a-z]px_nps[0-9])|gpu\.intel\.com/.+|habana\.ai/gaudi"
)
_MIG = "nvidia.com/mig-"
# By what starts it, or by the last part of its image's name. What only stands in front of an engine is none.
_COMMANDS = {
    "vllm": r"\bvllm serve\b|vllm\.entrypoints",
    "sglang": r"sglang\.launch_server",
    "tgi": r"text-generation-launcher",
    "llamacpp": r"\bllama-server\b",
    "triton": r"\btritonserver\b",
    "trtllm": r"\btrtllm-serve\b",
    "lmdeploy": r"\blmdeploy serve\b",
}
_IMAGES = {
    "vllm": r"vllm(?:-openai)?(?:-rocm|-cpu)?",
    "sglang": r"sglang",
    "tgi": r"text-generation-inference",
    "llamacpp": r"llama\.cpp",
    "triton": r"tritonserver",
    "lmdeploy": r"lmdeploy",
}
# They write answers token by token, for seconds or minutes, from weights that take as long to load.
GENERATIVE = frozenset({"vllm", "sglang", "tgi", "llamacpp", "trtllm", "lmdeploy"})


@dataclass(frozen=True)
class Container:
    """One container. at: its place in the object."""

    value: DocumentValue
    at: Loc

    @cached_property
    def words(self) -> tuple[tuple[str, Loc], ...]:
        """Its command and arguments, one word each, and where each stands; what a shell gets is taken apart."""
        found: list[tuple[str, Loc]] = []
        for key in ("command", "args"):
            for index, one in enumerate(self.value.items(key)):
                found += [(word, (*self.at, key, index)) for word in _split(one.text or "")]
        return tuple(found)

    @cached_property
    def _started(self) -> str | None:
        """The engine that its words start, in so many words."""
        line = " ".join(word for word, _ in self.words)
        return next((name for name, sign in _COMMANDS.items() if re.search(sign, line)), None)

    @cached_property
    def engine(self) -> str | None:
        image = self.value.read("image").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return self._started or next((name for name, sign in _IMAGES.items() if re.fullmatch(sign, image)), None)

    @property
    def shows_options(self) -> bool:
        """All options of its engine are among its words: no script starts it, and no file has more of them."""
        return (self._started is not None or self.value.at("command") is None) and self.option("--config") is None

    @property
    def resources(self) -> frozenset[str]:
        """Names of the GPUs it asks for."""
        asked = {**self.value.below("resources", "requests"), **self.value.below("resources", "limits")}
        return frozenset(name for name, amount in asked.items() if _GPU.fullmatch(name) and amount.text != "0")

    def option(self, *names: str) -> tuple[str, Loc] | None:
        """The value of `--name value` or `--name=value`, the last one given, and its place; "" for a bare switch."""
        found = None
        for index, (word, loc) in enumerate(self.words):
            name, equals, value = word.partition("=")
            if name not in names:
                continue
            after = self.words[index + 1] if index + 1 < len(self.words) else ("", loc)
            found = (value, loc) if equals else ("", loc) if after[0].startswith("-") else after
        return found

    def amount(self, *names: str) -> tuple[int, Loc] | None:
        """The same, as a whole number."""
        said = self.option(*names)
        return (int(said[0]), said[1]) if said is not None and said[0].isdecimal() else None

    @property
    def pause_s(self) -> float | None:
        """How long its preStop waits; None where it has none, 0 where that cannot be told."""
        if self.value.at("lifecycle", "preStop") is None:
            return None
        slept = self.value.count("lifecycle", "preStop", "sleep", "seconds")
        if slept is not None:
            return float(slept)
        line = " ".join(one.text or "" for one in self.value.items("lifecycle", "preStop", "exec", "command"))
        said = re.search(r"\bsleep ([0-9]+)\b", line)
        return float(said[1]) if said else 0.0


@dataclass(frozen=True)
class LintWorkload:
    """One thing that has replicas. at: where the pods' spec stands. labels: of the pods."""

    thing: Thing
    at: Loc
    pod: DocumentValue
    labels: dict[str, str]

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        return tuple(
            Container(one, (*self.at, "containers", index)) for index, one in enumerate(self.pod.items("containers"))
        )

    @cached_property
    def serving(self) -> tuple[Container, ...]:
        """Those that do the work: on GPUs; where none asks for one (a claim may), those whose engine is known."""
        on_gpus = tuple(one for one in self.containers if one.resources)
        return on_gpus or tuple(one for one in self.containers if one.engine is not None)

    @property
    def on_gpus(self) -> bool:
        return any(one.resources for one in self.containers)

    @property
    def on_mig(self) -> bool:
        return any(name.startswith(_MIG) for one in self.containers for name in one.resources)


def workload(thing: Thing) -> LintWorkload | None:
    """None: it has no replicas, or no pods that can be seen."""
    if thing.kind not in SCALED:
        return None
    if thing.kind == "LeaderWorkerSet":
        inner = ("spec", "leaderWorkerTemplate")
        leads = thing.value.at(*inner, "leaderTemplate") is not None
        template: tuple[str, ...] = (*inner, "leaderTemplate" if leads else "workerTemplate")
    else:
        template = ("spec", "template")
    pod = thing.value.at(*template, "spec")
    if pod is None:
        return None
    labels = {key: value.text or "" for key, value in thing.value.below(*template, "metadata", "labels").items()}
    return LintWorkload(thing, (*template, "spec"), pod, labels)


def _split(text: str) -> list[str]:
    if not re.search(r"\s", text):
        return [text] if text else []
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed
        return text.split()
