"""What two or more replicas of Tidegate must know to answer as one. Names only: nothing here asks for a Lease.

Worked example: `lease: tidegate.tidegate` is the Lease `tidegate` in the namespace `tidegate`, which all replicas name.
"""

from __future__ import annotations

from typing import Annotated

from .endpoint import File, Section, Text
from .places import FULL_LEASE
from .scalars import ADDRESS, Address


class Peers(Section):
    """Two or more replicas that answer as one: a Lease says which one leads, and the others repeat its decisions. Each
    replica's own name and address come from its pod: `POD_NAME` and `POD_IP` in its environment. It needs `kubernetes`.
    """

    address: Annotated[Address, ADDRESS] = Address("0.0.0.0", 8444)  # noqa: S104
    """Where the other replicas ask. They call this very address if it is no wildcard, else `POD_IP`."""
    certificate: File
    """PEM file of the certificate chain, for `server_name`. It is shown to the others in both directions, so it must be
    good for servers and for clients. It is read again when it changes, as are the other two."""
    key: File
    """PEM file of its private key."""
    ca: File
    """PEM file of the authority of all replicas' certificates. It may sign for others: the name is checked as well."""
    server_name: Text
    """The name in every replica's certificate, as `tidegate.tidegate.svc`. It is compared, never looked up."""
    lease: Annotated[str, FULL_LEASE]
    """The Lease, as `NAME.NAMESPACE`. It is made if it is not there. All replicas of one Tidegate name the same one,
    and no other Tidegate does."""
