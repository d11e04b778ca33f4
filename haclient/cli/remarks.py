"""Remarks of ``haclient members`` on the whole cluster: several primaries, duplicate endpoints, routers.

Rules
-----
* Pure: turns findings, and the identities of brokers, into sentences.
* Endpoints with different container ids are different brokers.  For equal ids, ``identity.Process`` has the
  brokers found.  If that is uncertain, the sentence names both possibilities.
* Each of two sites has a primary of its own.
* All addresses from DNS for one name, of both IP versions, are assumed to be one broker's.
* A product whose nodes all serve has no primary, so it cannot have two.
* A member that redirects and reports a role is passive.  One that reports none is a connection router, which
  stores nothing (Artemis), or at least behaves like one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from haclient.cli.identity import Process
from haclient.cli.probe import Finding, NotAsked
from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.core.quirks.products import Quirk, quirks_of
from haclient.discovery.attempt_summary import endpoint_text
from haclient.discovery.evidence import FailureReason

_SEVERAL = 2
# Artemis 2.56: "amqp:connection:forced: Connection router NAME is not ready".
_ROUTER_NOT_READY = "amqp:connection:forced: Connection router "
_LISTED = {Origin.SEED, Origin.RESOLVED}


class RemarkKind(enum.Enum):
    """The subject of a remark, as ``--json`` names it."""

    SEVERAL_PRIMARIES = "several-primaries"
    SAME_BROKER = "same-broker"
    PERHAPS_SAME_BROKER = "perhaps-same-broker"
    ROUTER = "router"
    EVERY_NODE_SERVES = "every-node-serves"
    NOT_ASKED = "not-asked"


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence about some endpoints.

    :param is_warning: whether action is needed.
    """

    kind: RemarkKind
    endpoints: tuple[Endpoint, ...]
    text: str
    is_warning: bool = True


def remarks(
    found: Sequence[Finding], processes: Sequence[Process], not_asked: Sequence[NotAsked]
) -> tuple[Remark, ...]:
    """Return the remarks on a cluster, starting with primaries.

    :param processes: the serving brokers of both sites.
    """
    return (
        *_several(processes, second_site=False),
        *_several(processes, second_site=True),
        *_same_broker(processes),
        *_routers(found),
        *(_not_asked(each) for each in not_asked),
    )


def _several(processes: Sequence[Process], *, second_site: bool) -> Iterator[Remark]:
    brokers = [
        each
        for each in processes
        if each.is_certain
        and each.members[0].second_site is second_site
        and Quirk.ROUTER not in quirks_of({"product": each.members[0].product})
    ]
    if len(brokers) < _SEVERAL:
        return
    endpoints = tuple(each.members[0].endpoint for each in brokers)
    named = _names(endpoints)
    if all(Quirk.EVERY_NODE_SERVES in quirks_of({"product": each.members[0].product}) for each in brokers):
        text = f"{named} all serve, as all nodes of {brokers[0].members[0].product} do: none is passive"
        yield Remark(RemarkKind.EVERY_NODE_SERVES, endpoints, text, is_warning=False)
        return
    yield Remark(
        RemarkKind.SEVERAL_PRIMARIES,
        endpoints,
        f"{len(brokers)} brokers claim to be the primary: {named}. {_identities(brokers)}: what is sent to "
        "one is not at the other",
    )


def _identities(brokers: Sequence[Process]) -> str:
    shared = {each.container for each in brokers}
    if len(shared) == 1:
        return f"They have one identity ({shared.pop()}), so their cluster has split; stop all but one"
    return "Each has its own identity, so the URL names more than one cluster, or theirs has split"


def _same_broker(processes: Sequence[Process]) -> Iterator[Remark]:
    for each in processes:
        endpoints = tuple(member.endpoint for member in each.members)
        if not each.is_certain:
            yield Remark(
                RemarkKind.PERHAPS_SAME_BROKER,
                endpoints,
                f"{_names(endpoints)} serves with the identity of another ({each.container}): it is "
                "the same broker under another address, or two serve at once",
            )
        elif len({(endpoint.tls_name, endpoint.port) for endpoint in endpoints}) > 1:
            yield Remark(
                RemarkKind.SAME_BROKER,
                endpoints,
                f"{_names(endpoints)} are one broker under several addresses ({each.container}): they fail "
                "together",
                is_warning=False,
            )


def _routers(found: Sequence[Finding]) -> Iterator[Remark]:
    for each in found:
        name = endpoint_text(each.endpoint)
        if Quirk.ROUTER in quirks_of({"product": each.product}):
            text = (
                f"{name} is a router ({each.product}): it stores no message, and the brokers behind it are "
                "not seen from here"
            )
        elif _redirects_only(each):
            text = f"{name} is a connection router, which redirects and stores no message"
            if not any(other.primary and other.endpoint.origin in _LISTED for other in found):
                text += (
                    ". Name the brokers behind it in the URL too: without it the client finds none of them"
                )
        else:
            continue
        yield Remark(RemarkKind.ROUTER, (each.endpoint,), text, is_warning=False)


def _redirects_only(found: Finding) -> bool:
    """Test if an endpoint redirects without a role of its own, or reports that it has no target."""
    if found.role is not None:
        return False
    return found.kind == FailureReason.REDIRECTED.value or _ROUTER_NOT_READY in (found.why or "")


def _not_asked(each: NotAsked) -> Remark:
    return Remark(
        RemarkKind.NOT_ASKED,
        (each.endpoint,),
        f"{each.endpoint}, named by {each.source}, was not asked: {each.reason}",
        is_warning=False,
    )


def _names(endpoints: Sequence[Endpoint]) -> str:
    *first, last = map(endpoint_text, endpoints)
    return f"{', '.join(first)} and {last}" if first else last
