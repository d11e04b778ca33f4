"""Names of the management node and of the types that it manages.

Source: AMQP Management 1.0, working draft 16, section 2.
"""

from __future__ import annotations

MANAGEMENT = "$management"

MEMBER_TYPE = "haclient.member"
QUEUE_TYPE = "haclient.queue"
EXCHANGE_TYPE = "haclient.exchange"
BINDING_TYPE = "haclient.binding"
FOLLOWED_QUEUE_TYPE = "haclient.followed_queue"
