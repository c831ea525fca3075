"""The parts of a scenario: one model, Tidegate, KEDA and the HPA, and the judge.

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
    """model, gate, control: arguments of `world.Model`, `gate.Gate`, `control.Control`. gpus: whether dcgm-exporter
    exposes them. keda: another ScaledObject.
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
        self.answers = []  # (seconds since the start, replicas, active, reason) of each change
        self.clock.resting, self.clock.rested = self._rests, self.gate.catch_up
        self.clock.foreseen = self._foreseen

    def run(self, seconds):
        self.clock.run_until(self.clock.now + seconds)

    def run_to(self, seconds):
        """Run until that many seconds after the start."""
        self.clock.run_until(self.begin + seconds)

    def at(self, seconds, call):
        """Call once, that many seconds after the start."""
        self.clock.at(self.begin + seconds, call)

    def ask_at(self, seconds, service_s=5.0, patience_s=inf):
        self.model.ask_at(self.begin + seconds, service_s, patience_s)

    def silence(self, role, since, until):
        """Targets of this role do not respond between these seconds after the start."""
        self.at(since, lambda: self.gate.silent.__setitem__(role, (self.begin + since, self.begin + until)))
        self.at(until, lambda: self.gate.silent.pop(role, None))

    def kill(self, seconds):
        """End the process now, and start another one after that many seconds."""
        self.gate.kill()
        self.control.stream_broke(seconds)
        self.clock.after(seconds, self.gate.start)

    def answer(self):
        decision = self.gate.answer(self.model)
        return None if decision is None else (decision.replicas, decision.active, str(decision.reason))

    def reasons(self):
        """All reasons in order, without immediate repetitions."""
        reasons = [reason for _, _, _, reason in self.answers]
        return [reason for index, reason in enumerate(reasons) if index == 0 or reasons[index - 1] != reason]

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
