"""The control planes a replay can be asked for by name, their parameters, and the grid they are tuned by.

`NAME` is one at its defaults; `NAME:key=value,key=value` changes some. Each family says in a line what it is; the grid
is what "best-tuned in hindsight" means: every combination of the values given there, published so that every reader can
check them. The hpa-* families are keda-* with at least one replica, for people who have no KEDA: what the grid of one
has tried the other need not.

Worked example:

    parse("keda-waiting:threshold=10,min=0").baseline()  # KEDA around sum(vllm:num_requests_waiting) > 10, to zero
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, isfinite
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from scaler.controllers import hpa, keda
from scaler.controllers.hpa import DEFAULT_DOWN, HpaBehavior, ScalingRules

from .ablations import CHOICES, NOTHING
from .baseline import Baseline, Observation, Static
from .baselines import aibrix, keda_and_hpa, knative, ray, tidegate, wva
from .baselines.keda_and_hpa import KedaAndHpa, average, whole

Value: TypeAlias = int | float | str
Values: TypeAlias = Mapping[str, Value]
Build: TypeAlias = Callable[[str, Values], Baseline]
Grid: TypeAlias = Mapping[str, Sequence[Value]]

MOST = 32  # replicas, by default


class Parameter(NamedTuple):
    """default: its type is the parameter's. least, most: numbers allowed. choices: the words allowed."""

    default: Value
    about: str
    least: float = 0.0
    most: float = inf
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFamily:
    """grid: the values tried of some parameters, all with all; the others stay at their defaults."""

    name: str
    about: str
    parameters: Mapping[str, Parameter]
    build: Build
    grid: Grid = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One family with all its values. Can be sent to another process; `plane` makes a new one each time."""

    family: str
    values: tuple[tuple[str, Value], ...]

    @property
    def name(self) -> str:
        """As it would be written: only what is not the default."""
        parameters = FAMILIES[self.family].parameters
        other = [f"{key}={value}" for key, value in self.values if value != parameters[key].default]
        return f"{self.family}:{','.join(other)}" if other else self.family

    def baseline(self) -> Baseline:
        return FAMILIES[self.family].build(self.name, dict(self.values))


def parse(text: str) -> Setting:
    """`NAME[:k=v,...]`. Raises ValueError that says what is wrong and what there is."""
    name, _, rest = text.partition(":")
    if name not in FAMILIES:
        raise ValueError(f"--policy {text}: there is no policy {name!r}; there are {', '.join(FAMILIES)}")
    parameters = FAMILIES[name].parameters
    values: dict[str, Value] = {key: parameter.default for key, parameter in parameters.items()}
    for part in rest.split(",") if rest else ():
        key, equals, word = part.partition("=")
        if not equals:
            raise ValueError(f"--policy {text}: {part!r} should be key=value, such as {next(iter(parameters))}=…")
        if key not in parameters:
            raise ValueError(f"--policy {text}: {name} has no {key!r}; it has {', '.join(parameters)}")
        values[key] = _read(text, key, parameters[key], word)
    if "min" in values and _count(values, "min") > _count(values, "max"):
        raise ValueError(f"--policy {text}: min={values['min']} is more than max={values['max']}")
    return Setting(name, tuple(values.items()))


def without_each_part(setting: Setting) -> list[Setting]:
    """The setting of `tidegate`, and the same without each part of the policy (`ablations`)."""
    return [Setting(setting.family, tuple({**dict(setting.values), "without": part}.items())) for part in CHOICES]


def grid(names: Sequence[str] = ()) -> list[Setting]:
    """All settings of the published grid, of these families or of all."""
    return [setting for name in names or FAMILIES for setting in _tried(FAMILIES[name])]


def _tried(family: PolicyFamily) -> Iterator[Setting]:
    defaults = {key: parameter.default for key, parameter in family.parameters.items()}
    for tried in product(*family.grid.values()) if family.grid else ():
        values = defaults | dict(zip(family.grid, tried, strict=True))
        yield Setting(family.name, tuple(values.items()))


def _read(text: str, key: str, parameter: Parameter, word: str) -> Value:
    if parameter.choices:
        if word not in parameter.choices:
            raise ValueError(f"--policy {text}: {key} must be one of {', '.join(parameter.choices)}, got {word!r}")
        return word
    kind = int if isinstance(parameter.default, int) else float
    try:
        number = kind(word)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise ValueError(f"--policy {text}: {key} must be {noun}, got {word!r}") from None
    if not isfinite(number):
        raise ValueError(f"--policy {text}: {key} must be a finite number, got {word}")
    if number < parameter.least:
        raise ValueError(f"--policy {text}: {key} must be at least {parameter.least:g}, got {word}")
    if number > parameter.most:
        raise ValueError(f"--policy {text}: {key} must be at most {parameter.most:g}, got {word}")
    return number


def _number(values: Values, key: str) -> float:
    return float(values[key])


def _count(values: Values, key: str) -> int:
    return int(values[key])


def _tidegate(name: str, values: Values) -> Baseline:
    least, most = _count(values, "min"), _count(values, "max")
    wish = tidegate.Wish(
        work=_number(values, "work"),
        kv_cache=_number(values, "kv-cache"),
        keep_warm_s=_number(values, "keep-warm"),
        up_s=_number(values, "up"),
        down_s=_number(values, "down"),
        band=_number(values, "band"),
        least=least,
        most=most,
        scrape_s=_number(values, "scrape"),
        without=str(values["without"]),
        foresight_s=_number(values, "foresight"),
        late_s=_number(values, "late"),
        lost=_number(values, "lost"),
        asleep=_number(values, "asleep"),
        wake_s=_number(values, "wake"),
    )
    return tidegate.baseline(name, wish)


def _static(_name: str, values: Values) -> Baseline:
    return Static(_count(values, "replicas"))


def _recipe(
    read: Callable[[Observation], float],
    *,
    metric: Callable[..., hpa.HpaMetric | hpa.WholeMetric],
    collects_s: float = 0.0,
) -> Build:
    def build(name: str, values: Values) -> Baseline:
        least, most, down_s = _count(values, "min"), _count(values, "max"), _number(values, "down")
        behavior = None
        if values["behavior"] == "default":
            behavior = HpaBehavior(down=ScalingRules(DEFAULT_DOWN.policies, window_s=down_s))
        scaler = keda_and_hpa.Prometheus(name, read, _number(values, "threshold"), collects_s)
        return KedaAndHpa(
            scaler,
            keda.ScaledObjectSpec(
                min_replicas=least,
                max_replicas=most,
                polling_interval_s=_number(values, "poll") if "poll" in values else 30.0,
                cooldown_s=_number(values, "cooldown") if "cooldown" in values else 300.0,
            ),
            hpa.HpaSpec(max_replicas=most, min_replicas=max(1, least), behavior=behavior, window_s=down_s),
            first=max(1, least),
            metric=metric,
        )

    return build


def _knative(name: str, values: Values) -> Baseline:
    least = _count(values, "min")
    spec = knative.KnativeSpec(
        target=_number(values, "target"),
        total=_number(values, "target") / 0.7,  # container-concurrency-target-percentage
        stable_s=_number(values, "stable"),
        panic_s=max(1.0, round(_number(values, "stable") * _number(values, "panic-window") / 100)),
        panic_threshold=_number(values, "panic-threshold") / 100,
        retention_s=_number(values, "retention"),
        delay_s=_number(values, "delay"),
        min_replicas=least,
        max_replicas=_count(values, "max"),
    )
    return knative.Knative(name, spec, first=max(1, least))


def _aibrix(name: str, values: Values) -> Baseline:
    return aibrix.Apa(
        name,
        aibrix.AibrixSpec(
            target=_number(values, "target"), window_s=_number(values, "window"), max_replicas=_count(values, "max")
        ),
    )


def _ray(name: str, values: Values) -> Baseline:
    return ray.Ray(
        name,
        ray.RaySpec(
            target=_number(values, "target"),
            up_s=_number(values, "up"),
            down_s=_number(values, "down"),
            to_zero_s=_number(values, "down"),
            min_replicas=_count(values, "min"),
            max_replicas=_count(values, "max"),
        ),
    )


def _wva(name: str, values: Values) -> Baseline:
    return wva.Wva(
        name,
        wva.WvaSpec(
            kv=_number(values, "kv"),
            queue=_number(values, "queue"),
            spare_kv=_number(values, "spare-kv"),
            spare_queue=_number(values, "spare-queue"),
            tolerance=_number(values, "tolerance"),
            max_replicas=_count(values, "max"),
        ),
    )


_MAX = Parameter(MOST, "replicas at the most", 1)
_BOUNDS = {
    "down": Parameter(300.0, "seconds of the downscale stabilisation window"),
    "min": Parameter(1, "replicas at least; 0 lets KEDA put it to sleep"),
    "max": _MAX,
}
_KEDA = {
    "behavior": Parameter("none", "the HPA's: none is what KEDA creates", choices=("none", "default")),
    **_BOUNDS,
    "poll": Parameter(30.0, "pollingInterval, seconds", 1),
    "cooldown": Parameter(300.0, "cooldownPeriod, seconds"),
}
_HPA = {
    "behavior": Parameter("default", "none, or autoscaling/v2's defaults", choices=("none", "default")),
    **_BOUNDS,
    "min": Parameter(1, "replicas at least", 1),
}
_BEHAVIORS = ("none", "default")
_LEAST = (0, 1, 2, 4)


def _recipes(
    name: str, query: str, build: Build, threshold: Parameter, keda_grid: Grid, hpa_grid: Grid
) -> tuple[PolicyFamily, PolicyFamily]:
    return (
        PolicyFamily(
            f"keda-{name}", f"KEDA and its HPA around {query}", {"threshold": threshold, **_KEDA}, build, keda_grid
        ),
        PolicyFamily(f"hpa-{name}", f"an HPA on {query}", {"threshold": threshold, **_HPA}, build, hpa_grid),
    )


FAMILIES: Mapping[str, PolicyFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            PolicyFamily(
                "tidegate",
                "Tidegate's own policy, by push through KEDA and the HPA as the examples configure them",
                {
                    "work": Parameter(0.0, "requests in hand per replica; 0: sized by the SLO of the server"),
                    "kv-cache": Parameter(0.9, "share of the KV cache in use, 0..1: a guard", 0.001),
                    "keep-warm": Parameter(0.0, "seconds idle before zero; 0 learns it"),
                    "up": Parameter(5.0, "half-life of a rise, seconds"),
                    "down": Parameter(60.0, "half-life of a fall, seconds"),
                    "band": Parameter(0.2, "replicas by which demand must fall below a step"),
                    "min": Parameter(0, "replicas at least"),
                    "max": _MAX,
                    "scrape": Parameter(tidegate.SCRAPE_S, "interval of the scrapes, seconds", 1),
                    "without": Parameter(NOTHING, "a part of the policy that is switched off", choices=CHOICES),
                    "foresight": Parameter(0.0, "seconds for which a perfect forecast knows the arrivals"),
                    "late": Parameter(0.0, "age of the metrics when they are read, seconds"),
                    "lost": Parameter(0.0, "share of the readings that are lost", most=1.0),
                    "asleep": Parameter(
                        1.0, "part of its price that a replica costs in sleep mode; 1: no sleep", 0.001, 1.0
                    ),
                    "wake": Parameter(2.0, "seconds that a wake from sleep mode takes"),
                },
                _tidegate,
                {"work": (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0), "down": (60.0, 300.0)},
            ),
            PolicyFamily(
                "static",
                "so many replicas, whatever comes",
                {"replicas": Parameter(1, "how many", 0)},
                _static,
                {"replicas": (*range(1, 33), *range(36, 61, 4))},
            ),
            *_recipes(
                "waiting",
                "sum(vllm:num_requests_waiting), AverageValue",
                _recipe(keda_and_hpa.waiting, metric=average),
                Parameter(5.0, "waiting requests per replica", 0.001),
                {"threshold": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0), "min": _LEAST, "behavior": _BEHAVIORS},
                {"threshold": (1.0, 2.0, 5.0, 10.0, 20.0), "down": (60.0, 600.0)},
            ),
            *_recipes(
                "waiting+running",
                "sum(vllm:num_requests_waiting + vllm:num_requests_running), AverageValue",
                _recipe(keda_and_hpa.in_hand, metric=average),
                Parameter(16.0, "requests in hand per replica", 0.001),
                {
                    "threshold": (2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0),
                    "min": _LEAST,
                    "behavior": _BEHAVIORS,
                },
                {"threshold": (4.0, 8.0, 16.0, 32.0, 64.0), "down": (60.0, 600.0)},
            ),
            *_recipes(
                "gpu-util",
                "avg(DCGM_FI_DEV_GPU_UTIL), Value",
                _recipe(keda_and_hpa.gpu_util, metric=whole, collects_s=keda_and_hpa.DCGM_COLLECTS_S),
                Parameter(80.0, "percent", 0.001),
                {"threshold": (50.0, 65.0, 80.0, 95.0), "behavior": _BEHAVIORS},
                {},
            ),
            *_recipes(
                "kv",
                "avg(vllm:kv_cache_usage_perc), Value",
                _recipe(keda_and_hpa.kv_used, metric=whole),
                Parameter(0.7, "share of the KV cache in use, 0..1", 0.001),
                {"threshold": (0.2, 0.35, 0.5, 0.65, 0.8), "min": (1, 2, 4), "behavior": _BEHAVIORS},
                {},
            ),
            PolicyFamily(
                "knative",
                "Knative's pod autoscaler (KPA), on concurrency, to zero",
                {
                    "target": Parameter(70.0, "concurrent requests per replica", 0.01),
                    "stable": Parameter(60.0, "stable-window, seconds", 6),
                    "panic-window": Parameter(10.0, "percent of the stable window", 1),
                    "panic-threshold": Parameter(200.0, "percent of the target", 110),
                    "retention": Parameter(0.0, "scale-to-zero-pod-retention-period, seconds"),
                    "delay": Parameter(0.0, "scale-down-delay, seconds"),
                    "min": Parameter(0, "replicas at least"),
                    "max": _MAX,
                },
                _knative,
                {
                    "target": (4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 70.0, 100.0),
                    "stable": (60.0, 180.0, 600.0),
                    "retention": (0.0, 300.0, 900.0),
                },
            ),
            PolicyFamily(
                "aibrix",
                "AIBrix's APA, on the use of the KV cache",
                {
                    "target": Parameter(0.5, "share of the KV cache in use, 0..1", 0.001),
                    "window": Parameter(180.0, "seconds the use is averaged over", 10),
                    "max": _MAX,
                },
                _aibrix,
                {"target": (0.1, 0.2, 0.3, 0.5, 0.7), "window": (60.0, 180.0)},
            ),
            PolicyFamily(
                "ray",
                "Ray Serve, on ongoing requests",
                {
                    "target": Parameter(2.0, "target_ongoing_requests", 0.001),
                    "up": Parameter(30.0, "upscale_delay_s"),
                    "down": Parameter(600.0, "downscale_delay_s"),
                    "min": Parameter(1, "min_replicas"),
                    "max": _MAX,
                },
                _ray,
                {
                    "target": (2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0),
                    "up": (0.0, 30.0),
                    "down": (120.0, 600.0),
                    "min": (0, 1),
                },
            ),
            PolicyFamily(
                "wva",
                "llm-d's Workload Variant Autoscaler, version 1, and its HPA",
                {
                    "kv": Parameter(0.8, "kvCacheThreshold, 0..1", 0.001),
                    "queue": Parameter(5.0, "queueLengthThreshold", 0.001),
                    "spare-kv": Parameter(0.1, "kvSpareTrigger, 0..1"),
                    "spare-queue": Parameter(3.0, "queueSpareTrigger"),
                    "tolerance": Parameter(0.1, "the HPA's tolerance, a ratio"),
                    "max": _MAX,
                },
                _wva,
                {"spare-kv": (0.1, 0.3, 0.5), "spare-queue": (1.0, 3.0, 4.0), "tolerance": (0.0,)},
            ),
        )
    }
)

# What "best-tuned in hindsight" is taken over: everybody but ourselves.
BASELINES: tuple[str, ...] = tuple(name for name in FAMILIES if name != "tidegate")
