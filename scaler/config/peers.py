"""What two or more replicas of Tidegate must know to answer as one. Names only: nothing here asks for a Lease.

Worked example: `lease: tidegate.tidegate` is the Lease `tidegate` in the namespace `tidegate`, which all replicas name.
"""

from __future__ import annotations

from typing import Annotated

from .access import File, Section, Text
from .places import FULL_LEASE
from .scalars import ADDRESS, Address


class Peers(Section):
    """Replicas of Tidegate with leader election: a Lease names the leader, the others repeat its decisions. Needs
    `kubernetes`, and `POD_NAME` and `POD_IP` in the environment.
    """

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8444)  # noqa: S104
    """Where other replicas connect: at this address, or at `POD_IP` if it is a wildcard."""
    certificate: File
    """PEM file: certificate chain for `server_name`, valid for servers and clients. Reloaded when changed, like `key`
    and `ca`."""
    key: File
    """PEM file: its private key."""
    ca: File
    """PEM file: CA of all replicas' certificates. It may sign others too: the name is verified."""
    server_name: Text
    """Name in every replica's certificate, such as `tidegate.tidegate.svc`. Compared, never resolved."""
    lease: Annotated[str, FULL_LEASE]
    """Lease, created if missing; the same for all replicas of one Tidegate and used by no other."""
