"""The conditions with which a member refuses or redirects a client.

Sources: AMQP 1.0 part 2, sections 2.8.15 and 2.8.16.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import proton

from broker_stub.amqp.conditions import (
    CONNECTION_FORCED,
    CONNECTION_REDIRECT,
    ESTABLISHMENT_FAILED,
    RETRY_AFTER,
)
from broker_stub.amqp.endpoints import endpoint_fields
from broker_stub.election.roles import Membership
from haclient.cluster_url.endpoint import Endpoint

if TYPE_CHECKING:
    from proton._data import PythonAMQPData

# The wire has 32 bits of milliseconds.
_MAX_RETRY_AFTER_MS = 2**32 - 1


def passive_refusal(membership: Membership) -> proton.Condition:
    """Return the Close condition of a member that does not serve: a redirect if it knows the primary."""
    if membership.primary is None:
        return proton.Condition(CONNECTION_FORCED, "this member is passive and knows no primary")
    return redirect(membership.primary)


def redirect(primary: Endpoint) -> proton.Condition:
    """Return the Close condition that redirects a client to the primary."""
    return proton.Condition(
        CONNECTION_REDIRECT, f"the primary is {primary}", cast("PythonAMQPData", endpoint_fields(primary))
    )


def with_retry_after(condition: proton.Condition, wait: float) -> proton.Condition:
    """Return the condition with ``retry-after`` in AMQP's ``info`` map; unchanged if the wait is 0.

    :param wait: seconds.
    """
    if wait <= 0:
        return condition
    retry_after = proton.uint(min(math.ceil(wait * 1000), _MAX_RETRY_AFTER_MS))
    info = condition.info if isinstance(condition.info, dict) else {}
    return proton.Condition(condition.name, condition.description, {**info, RETRY_AFTER: retry_after})


def refused_open() -> dict[str, bool]:
    """Return the Open property that keeps a refused client from waiting for a Begin."""
    return {ESTABLISHMENT_FAILED: True}
