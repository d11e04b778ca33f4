"""A member's status, completed with its queues, which it reports separately."""

from __future__ import annotations

from broker_stub.amqp.node_names import QUEUE_TYPE
from broker_stub.management_client import AdminClient, MemberStatus


async def status_with_queues(admin: AdminClient) -> MemberStatus:
    """Return the status, with every queue in ``facts["queues"]``."""
    status = await admin.status()
    status.facts["queues"] = await admin.query(QUEUE_TYPE)
    return status
