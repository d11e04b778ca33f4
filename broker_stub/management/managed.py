"""The interface of the broker that the management node uses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from broker_stub.election.roles import Membership
from broker_stub.management.request import RequestRefusedError
from broker_stub.queueing.nodes import Addresses
from haclient.cluster_url.endpoint import Endpoint


class Managed(Protocol):
    """A broker that can be managed."""

    @property
    def addresses(self) -> Addresses:
        """The broker's queues, exchanges and bindings."""

    @property
    def membership(self) -> Membership:
        """The broker's role in the cluster."""

    def status(self) -> dict[str, Any]:
        """Return the member's status; its time and size do not grow with the number of queues."""

    def followed_queues(self) -> list[tuple[str, str]]:
        """Return pairs of names: a link to another site, and a queue that the link has filled."""

    async def promote(self, *, at_least: int = 0, force: bool = False) -> str:
        """Become the primary; return a warning about possible losses, or an empty text."""

    async def demote(self, primary: Endpoint | None = None) -> None:
        """Become passive."""

    async def check_arbiter(self) -> None:
        """Read the arbiter, and step down if another member was made primary."""

    def follow(self, primary: Endpoint | None, *, generation: int = 0) -> None:
        """Set the address of the primary."""

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str = "") -> None:
        """Set the addresses of the cluster's members, for clients and for the members' own search."""

    async def wiring_settled(self) -> None:
        """Wait until every change of the wiring is durable, here and on the backups."""

    async def check_link_password(self, path: str) -> None:
        """Check that a link can read its password on this member.

        :raises broker_stub.sites.password_file.PasswordFileError: if it cannot.
        """

    def request_stop(self) -> None:
        """Ask the member to stop soon."""


def check_serves(broker: Managed) -> None:
    """Refuse to change the wiring of a member whose wiring is a copy of the primary's."""
    membership = broker.membership
    if not membership.role.serves:
        where = "" if membership.primary is None else f"; the primary is {membership.primary}"
        raise RequestRefusedError(
            HTTPStatus.CONFLICT, f"this member is {membership.role}: only a primary's wiring changes{where}"
        )
