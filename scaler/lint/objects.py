"""Reads the objects of one run: their kind, name and file, and the containers and engines of workloads. Pure.

A kind includes its API group: a `Rollout` of another group is no Rollout. A missing namespace is `default`. Objects of
a live cluster come as JSON; all their positions are the same, and reports omit them. An engine is recognised by its
command or by the name of its image.

Worked examples: the document `{apiVersion: apps/v1, kind: Deployment, metadata: {name: chat}}` of the file `a.yaml` is
`LintObject(..., file="a.yaml", kind="Deployment", namespace="default", name="chat")`. A container with the image
`vllm/vllm-openai:v0.11.0` and `args: [--max-num-seqs=64]` has `engine` "vllm" and `option("--max-num-seqs")` "64".
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
from scaler.config.trigger import ANNOTATION, ASIDES
from scaler.config.yaml import DocumentValue, TextPosition

# API group of each kind that a rule reads.
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
# A configuration file of Prometheus, which has no kind.
PROMETHEUS = "Prometheus configuration"
_SCRAPE_CONFIGS = re.compile(r"^[\"']?scrape_configs[\"']?\s*:", re.MULTILINE)


SCALED = ("Deployment", "StatefulSet", "LeaderWorkerSet", "Rollout")
# As in `exporter.kubernetes.decode` (whole and shared GPUs, MIG profiles, AMD's partitions), and the resource names of
# other vendors' device plugins.
_GPU = re.compile(
    r"nvidia\.com/(?:gpu(?:\..+)?|mig-.+)|amd\.com/(?:gpu(?:\..+)?|[a-z]px_nps[0-9])|gpu\.intel\.com/.+|habana\.ai/gaudi"
)
_MIG = "nvidia.com/mig-"
# By command, or by the last part of the image's name. Proxies in front of an engine are no engines.
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
# Engines that generate tokens: requests last seconds to minutes, and weights take as long to load.
GENERATIVE = frozenset({"vllm", "sglang", "tgi", "llamacpp", "trtllm", "lmdeploy"})

_NO_MARK = yaml.Mark("", 0, 0, 0, None, 0)
_TAG_PREFIX = "tag:yaml.org,2002:"
_NO_POSITION = TextPosition(1, 1)


@dataclass(frozen=True, slots=True)
class LintObject:
    """One object. kind: "" if no rule reads it."""

    value: DocumentValue
    file: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name, unique in a cluster."""
        return self.kind, self.namespace, self.name


def is_prometheus(text: str) -> bool:
    return _SCRAPE_CONFIGS.search(text) is not None


def objects_in(document: DocumentValue, file: str) -> Iterator[LintObject]:
    """The objects of a document: itself, the items of a List, or none if it is empty."""
    kind, version = document.read("kind"), document.read("apiVersion")
    if kind == "List":
        for item in document.items("items"):
            yield from objects_in(item, file)
    elif document.entries():  # two `---` in a row make an empty document
        group = version.rpartition("/")[0]
        if not kind and document.at("scrape_configs") is not None:
            kind = PROMETHEUS
        yield LintObject(
            document,
            file,
            kind if KINDS.get(kind) == group or kind == PROMETHEUS else "",
            document.read("metadata", "namespace") or "default",
            document.read("metadata", "name"),
        )


def value_of(document: dict[str, Any]) -> DocumentValue:
    """A document of the Kubernetes API, in the type of parsed manifests."""
    return DocumentValue(_node(document), _NO_POSITION)


def _node(data: Any) -> yaml.Node:
    if isinstance(data, dict):
        pairs = [(_scalar("str", str(key)), _node(each)) for key, each in data.items()]
        return yaml.MappingNode(f"{_TAG_PREFIX}map", pairs, _NO_MARK, _NO_MARK)
    if isinstance(data, list):
        return yaml.SequenceNode(f"{_TAG_PREFIX}seq", [_node(each) for each in data], _NO_MARK, _NO_MARK)
    match data:
        case str():
            return yaml.ScalarNode(f"{_TAG_PREFIX}str", data, _NO_MARK, _NO_MARK, style='"')
        case bool():
            return _scalar("bool", "true" if data else "false")
        case None:
            return _scalar("null", "null")
        case int():
            return _scalar("int", str(data))
    return _scalar("float", str(data))


def _scalar(tag: str, text: str) -> yaml.Node:
    return yaml.ScalarNode(_TAG_PREFIX + tag, text, _NO_MARK, _NO_MARK)


@dataclass(frozen=True)
class Container:
    """One container. at: its key in the object."""

    value: DocumentValue
    at: Loc

    @cached_property
    def arguments(self) -> tuple[tuple[str, Loc], ...]:
        """The words of its command and arguments with their keys; a shell's command line is split."""
        found: list[tuple[str, Loc]] = []
        for key in ("command", "args"):
            for index, one in enumerate(self.value.items(key)):
                found += [(word, (*self.at, key, index)) for word in _split(one.text or "")]
        return tuple(found)

    @cached_property
    def _command_engine(self) -> str | None:
        """The engine that its command names."""
        line = " ".join(word for word, _ in self.arguments)
        return next((name for name, sign in _COMMANDS.items() if re.search(sign, line)), None)

    @cached_property
    def engine(self) -> str | None:
        image = self.value.read("image").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return self._command_engine or next((name for name, sign in _IMAGES.items() if re.fullmatch(sign, image)), None)

    @property
    def shows_options(self) -> bool:
        """Whether its arguments have all options of its engine: neither a script nor a file adds some."""
        return (self._command_engine is not None or self.value.at("command") is None) and self.option(
            "--config"
        ) is None

    @property
    def resources(self) -> frozenset[str]:
        """Names of the GPU resources it requests."""
        requested = {**self.value.below("resources", "requests"), **self.value.below("resources", "limits")}
        return frozenset(name for name, amount in requested.items() if _GPU.fullmatch(name) and amount.text != "0")

    def option(self, *names: str) -> tuple[str, Loc] | None:
        """The last value of `--name value` or `--name=value`, and its key; "" for a switch."""
        found = None
        for index, (word, loc) in enumerate(self.arguments):
            name, equals, value = word.partition("=")
            if name not in names:
                continue
            after = self.arguments[index + 1] if index + 1 < len(self.arguments) else ("", loc)
            found = (value, loc) if equals else ("", loc) if after[0].startswith("-") else after
        return found

    def amount(self, *names: str) -> tuple[int, Loc] | None:
        """The same, as an integer."""
        found = self.option(*names)
        return (int(found[0]), found[1]) if found is not None and found[0].isdecimal() else None

    @property
    def pause_s(self) -> float | None:
        """Seconds that its preStop hook sleeps; None without one, 0 if unknown."""
        if self.value.at("lifecycle", "preStop") is None:
            return None
        sleep_s = self.value.count("lifecycle", "preStop", "sleep", "seconds")
        if sleep_s is not None:
            return float(sleep_s)
        line = " ".join(one.text or "" for one in self.value.items("lifecycle", "preStop", "exec", "command"))
        match = re.search(r"\bsleep ([0-9]+)\b", line)
        return float(match[1]) if match else 0.0


@dataclass(frozen=True)
class LintWorkload:
    """One object with replicas. at: key of the pod spec. labels: of the pods."""

    obj: LintObject
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
        """Containers with GPUs; without any (GPUs may come from a claim), those with a known engine."""
        on_gpus = tuple(one for one in self.containers if one.resources)
        return on_gpus or tuple(one for one in self.containers if one.engine is not None)

    @property
    def is_annotated(self) -> bool:
        """Whether its annotations make a workload: a brake makes none, nor do those of `tidegate check`."""
        keys = self.obj.value.below("metadata", "annotations")
        return any(key.startswith(ANNOTATION) and key.removeprefix(ANNOTATION) not in ASIDES for key in keys)

    @property
    def on_gpus(self) -> bool:
        return any(one.resources for one in self.containers)

    @property
    def on_mig(self) -> bool:
        return any(name.startswith(_MIG) for one in self.containers for name in one.resources)


def workload_of(obj: LintObject) -> LintWorkload | None:
    """None if the object has no replicas or no pod template."""
    if obj.kind not in SCALED:
        return None
    if obj.kind == "LeaderWorkerSet":
        inner = ("spec", "leaderWorkerTemplate")
        leads = obj.value.at(*inner, "leaderTemplate") is not None
        template: tuple[str, ...] = (*inner, "leaderTemplate" if leads else "workerTemplate")
    else:
        template = ("spec", "template")
    pod = obj.value.at(*template, "spec")
    if pod is None:
        return None
    labels = {key: value.text or "" for key, value in obj.value.below(*template, "metadata", "labels").items()}
    return LintWorkload(obj, (*template, "spec"), pod, labels)


def _split(text: str) -> list[str]:
    if not re.search(r"\s", text):
        return [text] if text else []
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed
        return text.split()
