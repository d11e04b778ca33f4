"""A client of the members, and an impostor among them; ``haclient.discovery.topology`` decides whom it uses.

The client may meet any member that serves, and anybody who says that he does: the impostor announces what he
likes, and cannot prove who he is.  Whether the members can is a fact of the cluster (``proves``).  When a
member is stale for the client, that may have lasted for ``refusal_timeout``: then the client forgets.

What is asked of it: it never goes back to an older primary, unless it has forgotten the newer one; and
nobody can lock it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import Claimed, OnlyStaleServed
from haclient.discovery.topology import Topology
from tests.broker_stub.election.model.rules import Rules

_CLUSTER = "c"
_SOMEWHERE = Endpoint("127.0.0.1", 5672)


class Client(NamedTuple):
    """The memory of a client; 0 for no generation.

    :param proves: whether members prove who they are.
    :param known: the highest generation that it knows; ``proven``: of those who prove who they are.
    :param used: the highest generation of the members that it has used since it last forgot.
    :param went_back: whether it then used an older one.
    """

    proves: bool
    known: int = 0
    proven: int = 0
    used: int = 0
    went_back: bool = False

    @property
    def topology(self) -> Topology:
        known, proven = (((_CLUSTER, number),) if number else () for number in (self.known, self.proven))
        return Topology(seeds=(), generations=known, proven=proven)

    def met(self, rules: Rules, generation: int | None, *, member: bool) -> Client | None:
        """The client that has used a member, or the impostor; ``None`` if it refuses that."""
        before = self.topology
        proven = member and self.proves
        after = rules.learn(before, Claimed(_SOMEWHERE, generation, _CLUSTER, 0, proven=proven))
        if after is before:
            return None
        found = self._remembering(after)
        if not member or generation is None:
            return found
        return found._replace(used=max(self.used, generation), went_back=generation < self.used)

    def forgetful(self, rules: Rules) -> Client:
        """The client after only stale primaries have served it for long."""
        return self._remembering(rules.learn(self.topology, OnlyStaleServed(0)))._replace(used=0)

    def _remembering(self, topology: Topology) -> Client:
        known, proven = (topology.highest(_CLUSTER, proven=each) or 0 for each in (False, True))
        return self._replace(known=known, proven=proven)


def meets(client: Client, rules: Rules, name: str, generation: int) -> Iterator[tuple[str, Client]]:
    """Return what may happen when the client meets a member that serves."""
    found = client.met(rules, generation, member=True)
    if found is not None:
        yield f"the client uses {name} in generation {generation}", found
    else:
        label = f"only stale primaries serve, as {name} in generation {generation}: the client forgets"
        yield label, client.forgetful(rules)


def is_misled(client: Client, rules: Rules, highest: int) -> Iterator[tuple[str, Client]]:
    """Return what may happen when it meets the impostor."""
    for generation in (None, *range(1, highest + 1)):
        found = client.met(rules, generation, member=False)
        if found is not None:
            yield f"the client uses an impostor in generation {generation}", found
