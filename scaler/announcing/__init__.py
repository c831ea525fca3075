"""What happens to workloads, told where people look for it: as Events on the objects that are scaled."""

from .announcer import Announcer
from .place import place

__all__ = ["Announcer", "place"]
