"""The records of ``broker_stub.election.generation``, and the steps that its state machines request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# --- Records ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArbiterRecord:
    """The record of the arbiter; an arbiter that was never used holds (0, "").

    :param cluster: the cluster's UUID; empty in a record of a version without it.
    :param origin: the generation of the arbiter when the UUID was made.
    """

    generation: int = 0
    claim: str = ""
    cluster: str = ""
    origin: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A generation that a member has asked for, or that its primary is about to ask for."""

    generation: int
    claim: str


@dataclass(frozen=True, slots=True)
class PrimaryIdentity:
    """The identity of a primary, as sent to a member that wants to follow it.

    :param cluster: the UUID of its cluster; empty for a version without it.
    """

    generation: int
    cluster: str


@dataclass(frozen=True, slots=True)
class GenerationState:
    """The durable state of one member.

    :param generation: the member has all messages settled up to this generation. ``None`` if that is unknown
        (in catch-up, after the loss of its store); 0 for a store that was never part of a cluster.
    :param claim: the claim of ``generation``; empty if that is 0, erased, or of a version without claims.
    :param cluster: the UUID of the content's cluster; empty in a store that was never part of one, or of a
        version without it.
    """

    generation: int | None = 0
    pending: Pending | None = None
    claim: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a request is not allowed; its text names both generations."""

    text: str

    def __str__(self) -> str:
        return self.text


# --- Steps: the next action of the caller --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MakeClaim:
    """Make an id that was never used, and call ``with_claim``."""


@dataclass(frozen=True, slots=True)
class NotePending:
    """Send the pending to these replicas; each writes it durably and acknowledges."""

    replicas: frozenset[str]
    pending: Pending


@dataclass(frozen=True, slots=True)
class AwaitNoted:
    """Wait, and call ``noted`` for each acknowledgement; ``dropped`` ends the wait too."""

    replicas: frozenset[str]


@dataclass(frozen=True, slots=True)
class WritePending:
    """Write this state durably."""

    state: GenerationState


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Ask the arbiter; call ``compared``, or ``unreachable`` if the outcome is unknown."""

    expected: ArbiterRecord
    new: ArbiterRecord


@dataclass(frozen=True, slots=True)
class WriteGeneration:
    """Write this state durably."""

    state: GenerationState


@dataclass(frozen=True, slots=True)
class HandOver:
    """Send the record to these replicas; their acknowledgement is not awaited."""

    replicas: frozenset[str]
    record: ArbiterRecord


@dataclass(frozen=True, slots=True)
class StartWaiting:
    """From now on, settle nothing without the acknowledgement of this replica."""


@dataclass(frozen=True, slots=True)
class AwaitDrained:
    """Wait until the replica has acknowledged everything settled before ``StartWaiting``."""


@dataclass(frozen=True, slots=True)
class AwaitNoShrink:
    """Wait until the in-sync set is not being shrunk; then ``HandOver`` in the same iteration of the loop."""


@dataclass(frozen=True, slots=True)
class Done:
    """Everything is written: settling is allowed in this record's generation.

    For ``ShrinkInSync`` the record is the primary's own.
    """

    record: ArbiterRecord


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is refused; the member keeps its role."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class StepDown:
    """Settle nothing more, close the clients' connections, and search for the primary."""

    reason: str


@dataclass(frozen=True, slots=True)
class IsReady:
    """The replica counts as ready: if it drops, rule 2 applies."""


PromotionStep: TypeAlias = WritePending | CompareAndSet | WriteGeneration | Done | Refused
ShrinkInSyncStep: TypeAlias = (
    MakeClaim
    | NotePending
    | AwaitNoted
    | WritePending
    | CompareAndSet
    | WriteGeneration
    | HandOver
    | Done
    | StepDown
)
BecomeReadyStep: TypeAlias = StartWaiting | AwaitDrained | AwaitNoShrink | HandOver | IsReady
