"""A client of the members, and an impostor among them; ``haclient.discovery.topology`` makes its choice.

The client may meet any member that serves, and an impostor that claims to serve.  The impostor announces any
generation, and cannot prove its identity.  Whether the members can is a fact of the cluster (``proves``).
If a member is stale for the client, that may have lasted for ``refusal_timeout``: then the client forgets.

Two requirements: the client never returns to an older primary unless it has forgotten the newer one, and
no impostor can lock it out.
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

    :param proves: True if members prove their identity.
    :param known: the highest generation that it knows; ``proven``: of peers with a proven identity.
    :param used: the highest generation of the members that it has used since it last forgot.
    :param went_back: True if it then used an older one.
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
        """Return the client after it used a member or the impostor; ``None`` if it refuses to."""
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
        """Return the client after only stale primaries have served it for long."""
        return self._remembering(rules.learn(self.topology, OnlyStaleServed(0)))._replace(used=0)

    def _remembering(self, topology: Topology) -> Client:
        known, proven = (topology.highest(_CLUSTER, proven=each) or 0 for each in (False, True))
        return self._replace(known=known, proven=proven)


def meets(client: Client, rules: Rules, name: str, generation: int) -> Iterator[tuple[str, Client]]:
    """Return the possible results when the client meets a member that serves."""
    found = client.met(rules, generation, member=True)
    if found is not None:
        yield f"the client uses {name} in generation {generation}", found
    else:
        label = f"only stale primaries serve, as {name} in generation {generation}: the client forgets"
        yield label, client.forgetful(rules)


def is_misled(client: Client, rules: Rules, highest: int) -> Iterator[tuple[str, Client]]:
    """Return the possible results when the client meets the impostor."""
    for generation in (None, *range(1, highest + 1)):
        found = client.met(rules, generation, member=False)
        if found is not None:
            yield f"the client uses an impostor in generation {generation}", found
