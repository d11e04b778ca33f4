"""What is managed: the broker, as the management node sees it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from broker_stub.address import Address
from broker_stub.election.roles import Membership
from broker_stub.management.request import RequestRefusedError
from broker_stub.queueing.nodes import Addresses


class Managed(Protocol):
    """One broker."""

    @property
    def addresses(self) -> Addresses:
        """Its queues, exchanges and bindings."""

    @property
    def membership(self) -> Membership:
        """What it is in its cluster."""

    def status(self) -> dict[str, Any]:
        """What the member is and has."""

    async def promote(self, *, at_least: int = 0, force: bool = False) -> str:
        """Become the primary; what that may have lost, empty for nothing."""

    async def demote(self, primary: Address | None = None) -> None:
        """Become passive."""

    def follow(self, primary: Address | None, *, generation: int = 0) -> None:
        """Learn where the primary is."""

    async def set_members(self, members: tuple[Address, ...]) -> None:
        """Learn where the members of the cluster are."""

    async def wiring_settled(self) -> None:
        """Wait until every change of the wiring is durable, and on the backups."""

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
