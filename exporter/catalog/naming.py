"""How things on a page get the names people use in a configuration. It knows labels and nothing of any vendor.

A name is what the page calls the thing; where a page says more than a person would (a database, a virtual host, an
account), the rest is added only where two things on the page would else have one name.

Worked example: `shortest` of the keys `("/", "jobs")`, `("/", "mail")` and `("test", "mail")` is `Queue("jobs")`,
`Queue("//mail")` and `Queue("test/mail")`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exporter.model import Queue, Subject

from .words import Columns, Key, Labels

UNNAMED = "default"  # the queue of a page that names none: it serves one model and does not say which


def one_queue_each(keys: Sequence[Key]) -> list[Subject | None]:
    return [Queue(key[0] or UNNAMED) for key in keys]


def shortest(keys: Sequence[Key]) -> list[Subject | None]:
    """The last part of a key alone where no other ends like it, else all of its parts."""
    last = [key[-1] for key in keys]
    return [
        Queue("/".join(filter(None, key)) if last.count(name) > 1 else name or UNNAMED)
        for key, name in zip(keys, last, strict=True)
    ]


def labels_of(*names: str | tuple[str, ...]) -> Callable[[Labels], Key]:
    """Group by all of these labels; of several in one place by the first that says something."""
    places = [(name,) if isinstance(name, str) else name for name in names]

    def key(labels: Labels) -> Key:
        return tuple(next((labels[name] for name in place if labels.get(name)), "") for place in places)

    return key


def as_it_is(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    return columns, subjects
