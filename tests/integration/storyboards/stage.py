"""A story's stage: one model, Tidegate, KEDA and the HPA, and the judge, put together.

Worked example: `stage = Stage(); stage.model.ask(); stage.run(600); stage.score().harm` is (0, 0, 0).
"""

from __future__ import annotations

from math import inf

from .clockwork import MONDAY, Clock
from .control import SHIPPED_OBJECT, Control
from .gate import CONSTANT, Gate
from .judge import Judge
from .world import Model, Node


class Stage:
    """model, gate, control: more of `world.Model`, `gate.Gate`, `control.Control`. gpus: does dcgm-exporter show them?
    keda: another ScaledObject.
    """

    def __init__(self, config=CONSTANT, *, model=None, gpus=False, gate=None, keda=SHIPPED_OBJECT, **control):
        self.clock, self.begin = Clock(), MONDAY
        self.model = Model(self.clock, "chat", **(model or {}))
        self.node = Node(self.clock, [self.model])
        self.gate = Gate(self.clock, config, [self.model], [self.node] if gpus else [], **(gate or {}))
        self.control = Control(self.clock, self.gate, self.model, keda, **control)
        self.judge = Judge(self.clock, self.gate, self.model)
        self.control.ordered = self.judge.ordered
        self.gate.answered = self._answered
        self.answers = []  # (seconds since the beginning, replicas, active, reason), each that differs from the last
        self.clock.resting, self.clock.rested = self._rests, self.gate.catch_up
        self.clock.foreseen = self._foreseen

    def run(self, seconds):
        self.clock.run_until(self.clock.now + seconds)

    def run_to(self, seconds):
        """Until so many seconds after the beginning."""
        self.clock.run_until(self.begin + seconds)

    def at(self, seconds, call):
        """Once, so many seconds after the beginning."""
        self.clock.at(self.begin + seconds, call)

    def ask_at(self, seconds, service_s=5.0, patience_s=inf):
        self.model.ask_at(self.begin + seconds, service_s, patience_s)

    def silence(self, role, since, until):
        """Pages of this role do not answer between these seconds after the beginning."""
        self.at(since, lambda: self.gate.silent.__setitem__(role, (self.begin + since, self.begin + until)))
        self.at(until, lambda: self.gate.silent.pop(role, None))

    def kill(self, seconds):
        """The process ends now, and another begins so many seconds later."""
        self.gate.kill()
        self.control.stream_broke(seconds)
        self.clock.after(seconds, self.gate.start)

    def answer(self):
        decision = self.gate.answer(self.model)
        return None if decision is None else (decision.replicas, decision.active, str(decision.reason))

    def reasons(self):
        """Every reason that was answered, in order, each once in a row."""
        reasons = [reason for _, _, _, reason in self.answers]
        return [reason for place, reason in enumerate(reasons) if place == 0 or reasons[place - 1] != reason]

    def score(self):
        return self.judge.score()

    def _answered(self, model, decision):
        answer = decision.replicas, decision.active, str(decision.reason)
        if not self.answers or self.answers[-1][1:] != answer:
            self.answers.append((self.clock.now - self.begin, *answer))
        self.judge.answered(decision)
        self.control.pushed(decision)

    def _rests(self):
        return not self.model.held and not self.model.pods and self.gate.rests()

    def _foreseen(self):
        decision = self.gate.answer(self.model)
        at = None if decision is None else decision.evidence.starts_again_at
        return inf if at is None or at < self.clock.now else at
