"""What KEDA and the HorizontalPodAutoscaler will do with a workload's number, when, and why not. Pure.

Objects of the cluster and a Decision in, an `Outlook` out: one code of a closed list, and sentences. The arithmetic is
`scaler.controllers`; what those controllers remember and do not tell is not guessed: the sentences say "at most".
"""

from __future__ import annotations

from .answer import outlook
from .codes import Code
from .facts import Facts, Shown, shown, survey
from .record import Act, Outlook
from .steps import Seen, View, controller_step

__all__ = ["Act", "Code", "Facts", "Outlook", "Seen", "Shown", "View", "controller_step", "outlook", "shown", "survey"]
