"""Reads keys of a Hugging Face config.json, and refuses a missing or impossible value by its name.

Nothing is guessed: a key without a default must be there. A default is what the architecture's own configuration class
in `transformers` takes when the key is absent, and stands where the key is read.

Worked example: `ConfigKeys({"hidden_size": 4096}).integer("num_hidden_layers")` raises `UnknownArchitecture:
config.json: num_hidden_layers: must be an integer of at least 1, got nothing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class UnknownArchitecture(ValueError):  # noqa: N818 - what is wrong is its name
    """A config.json that memory cannot be computed from. key: the key that is missing or has an unusable value."""

    def __init__(self, key: str, bound: str, value: object) -> None:
        self.key = key
        super().__init__(f"config.json: {key}: {bound}, got {'nothing' if value is None else repr(value)}")


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """The keys of one section of a config.json. section: the keys that lead to it, each with a dot."""

    values: Mapping[str, object]
    section: str = ""

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Returns the value of a key, at least `least`. Raises UnknownArchitecture, also if there is no default."""
        value = self.values.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UnknownArchitecture(self.section + key, f"must be an integer of at least {least}", value)
        return value

    def optional(self, key: str) -> int | None:
        """Returns the value of a key, at least 1; None if it is absent, null or 0."""
        return self.integer(key) if self.values.get(key) else None

    def either(self, *keys: str) -> int:
        """Returns the value of the first of these keys that is there: older configurations name some differently."""
        return self.integer(next((key for key in keys if key in self), keys[0]))

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise UnknownArchitecture(self.section + key, "must be true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, str) or not value:
            raise UnknownArchitecture(self.section + key, "must be a name", value)
        return value

    def sequence(self, key: str, length: int) -> Sequence[object]:
        """Returns a list with one entry per layer. A longer one is cut: drafting layers come after the last layer."""
        value = self.entries(key)
        if len(value) < length:
            raise UnknownArchitecture(self.section + key, f"must be a list with {length} entries", value)
        return value[:length]

    def entries(self, key: str) -> Sequence[object]:
        """Returns a list of any length."""
        value = self.values.get(key)
        if not isinstance(value, list | tuple):
            raise UnknownArchitecture(self.section + key, "must be a list", value)
        return value

    def within(self, key: str) -> ConfigKeys:
        """Returns a section of this section."""
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise UnknownArchitecture(self.section + key, "must be a section", value)
        return ConfigKeys(value, f"{self.section}{key}.")
