"""Valid requests to the cluster-admin node, for the seeds of ``management``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker_stub.amqp.node_names import (
    BINDING_TYPE,
    EXCHANGE_TYPE,
    FOLLOWED_QUEUE_TYPE,
    MEMBER_TYPE,
    QUEUE_TYPE,
)

Request = tuple[str, str, str, Mapping[str, Any]]
_PRIMARY = "127.0.0.1:5672"
_BINDING = {"exchange": "b", "queue": "a", "key": "a.*.#"}

REQUESTS: Mapping[str, Sequence[Request]] = {
    "queue": [
        ("CREATE", QUEUE_TYPE, "a", {"x-qpid-replicate": "all"}),
        ("CREATE", QUEUE_TYPE, "b", {"replicate": "none"}),
        ("READ", QUEUE_TYPE, "a", {}),
        ("UPDATE", QUEUE_TYPE, "a", {"x-qpid-site-replicate": "all"}),
        ("QUERY", QUEUE_TYPE, "a", {"attributeNames": ["name", "replicate"], "offset": 0, "count": 5}),
        ("DELETE", QUEUE_TYPE, "a", {}),
    ],
    "binding": [
        ("CREATE", QUEUE_TYPE, "a", {}),
        ("CREATE", EXCHANGE_TYPE, "b", {"type": "topic"}),
        ("CREATE", BINDING_TYPE, "c", _BINDING),
        ("READ", BINDING_TYPE, "c", _BINDING),
        ("QUERY", BINDING_TYPE, "c", {}),
        ("DELETE", BINDING_TYPE, "c", _BINDING),
        ("READ", EXCHANGE_TYPE, "b", {}),
        ("DELETE", EXCHANGE_TYPE, "b", {}),
    ],
    "site": [
        (
            "CREATE",
            EXCHANGE_TYPE,
            "b",
            {"type": "replication", "from": "amqp://127.0.0.1", "missing": "create"},
        ),
        ("QUERY", EXCHANGE_TYPE, "b", {"count": 1}),
        ("UPDATE", EXCHANGE_TYPE, "b", {"applying": False}),
        ("QUERY", FOLLOWED_QUEUE_TYPE, "b", {}),
        ("READ", MEMBER_TYPE, "a", {}),
    ],
    "member": [
        ("READ", MEMBER_TYPE, "a", {}),
        ("UPDATE", MEMBER_TYPE, "a", {"members": [_PRIMARY]}),
        ("DEMOTE", MEMBER_TYPE, "a", {"primary": _PRIMARY}),
        ("CREATE", QUEUE_TYPE, "a", {}),
        ("SET-PRIMARY", MEMBER_TYPE, "a", {"primary": _PRIMARY, "generation": 3}),
        ("PROMOTE", MEMBER_TYPE, "a", {"generation": 4, "force": True}),
        ("CHECK-ARBITER", MEMBER_TYPE, "a", {}),
        ("STOP", MEMBER_TYPE, "a", {}),
    ],
}
