"""Names of AMQP error conditions, and of the fields that go with them.

Sources: AMQP 1.0 part 2, sections 2.8.15 to 2.8.18; the Open property as Qpid JMS reads it.
"""

from __future__ import annotations

import proton

DECODE_ERROR = "amqp:decode-error"
ILLEGAL_STATE = "amqp:illegal-state"
INTERNAL_ERROR = "amqp:internal-error"
INVALID_FIELD = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
NOT_FOUND = "amqp:not-found"
NOT_IMPLEMENTED = "amqp:not-implemented"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
RESOURCE_LOCKED = "amqp:resource-locked"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"

CONNECTION_FORCED = "amqp:connection:forced"
CONNECTION_REDIRECT = "amqp:connection:redirect"
FRAMING_ERROR = "amqp:connection:framing-error"

LINK_MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
LINK_STOLEN = "amqp:link:stolen"

ESTABLISHMENT_FAILED = "amqp:connection-establishment-failed"
"""The property of an Open that is directly followed by a Close."""
RETRY_AFTER = proton.symbol("retry-after")
"""Milliseconds until the client may connect again, in the ``info`` map of a refusal."""
