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
        """Its queues, exchanges and bindings."""

    @property
    def membership(self) -> Membership:
        """Its role in the cluster."""

    def status(self) -> dict[str, Any]:
        """The member's status, in a time and size that do not grow with its queues."""

    def followed_queues(self) -> list[tuple[str, str]]:
        """The names of the links to other sites, each with the name of a queue that it has filled."""

    async def promote(self, *, at_least: int = 0, force: bool = False) -> str:
        """Become the primary; return a warning of what that may have lost, or an empty text."""

    async def demote(self, primary: Endpoint | None = None) -> None:
        """Become passive."""

    async def check_arbiter(self) -> None:
        """Read the arbiter, and step down if another member was made primary."""

    def follow(self, primary: Endpoint | None, *, generation: int = 0) -> None:
        """Take the address of the primary."""

    async def set_members(self, members: tuple[Endpoint, ...], broker_url: str = "") -> None:
        """Take the addresses of the cluster's members: for clients, and where members look for each other."""

    async def wiring_settled(self) -> None:
        """Wait until every change of the wiring is durable, and on the backups."""

    async def check_link_password(self, path: str) -> None:
        """Make sure that a link can read its password on this member.

        :raises broker_stub.sites.password_file.PasswordFileError: when it cannot.
        """

    def request_stop(self) -> None:
        """Stop soon."""


def check_serves(broker: Managed) -> None:
    """Refuse to change the wiring of a member whose wiring is a copy of the primary's."""
    membership = broker.membership
    if not membership.role.serves:
        where = "" if membership.primary is None else f"; the primary is {membership.primary}"
        raise RequestRefusedError(
            HTTPStatus.CONFLICT, f"this member is {membership.role}: only a primary's wiring changes{where}"
        )
