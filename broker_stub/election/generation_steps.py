"""What ``broker_stub.election.generation`` speaks in: records, and the steps that its machines ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# --- Records ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArbiterRecord:
    """What the arbiter holds; an arbiter that was never used holds (0, "").

    :param cluster: the cluster's UUID; empty in a record of a version that had none.
    :param origin: the generation of the arbiter when the UUID was made.
    """

    generation: int = 0
    claim: str = ""
    cluster: str = ""
    origin: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A generation that a member has asked for, or heard that its primary asks for."""

    generation: int
    claim: str


@dataclass(frozen=True, slots=True)
class PrimaryIdentity:
    """What a primary says of itself to a member that wants to follow it.

    :param cluster: the UUID of its cluster; empty for a version that has none.
    """

    generation: int
    cluster: str


@dataclass(frozen=True, slots=True)
class GenerationState:
    """What one member has durably.

    :param generation: the generation of whose settled messages it has all; ``None`` when that is not
        known (in catch-up, after the loss of its store).  A store that was never part of a cluster has 0.
    :param claim: the claim of ``generation``; empty where that is 0, erased, or of a version without it.
    :param cluster: the UUID of the cluster that the content belongs to; empty in a store that was never part
        of one, or of a version without it.
    """

    generation: int | None = 0
    pending: Pending | None = None
    claim: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not allowed; its text names both generations."""

    text: str

    def __str__(self) -> str:
        return self.text


# --- Steps: what a driver does next --------------------------------------------------------------


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
    """Call ``noted`` for each acknowledgement; nothing else to do.  ``dropped`` ends the wait too."""

    replicas: frozenset[str]


@dataclass(frozen=True, slots=True)
class WritePending:
    """Write this state durably."""

    state: GenerationState


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Ask the arbiter, and call ``compared``, or ``unreachable`` when the outcome is not known."""

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
    """From now on settle nothing without the acknowledgement of this replica."""


@dataclass(frozen=True, slots=True)
class AwaitDrained:
    """Wait until the replica has acknowledged all that was settled before ``StartWaiting``."""


@dataclass(frozen=True, slots=True)
class AwaitNoShrink:
    """Wait until the in-sync set is not being shrunk; then ``HandOver`` in the same iteration of the loop."""


@dataclass(frozen=True, slots=True)
class Done:
    """All is written: this member may settle in this record's generation (its own, for ``ShrinkInSync``)."""

    record: ArbiterRecord


@dataclass(frozen=True, slots=True)
class Refused:
    """Stay what you are."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class StepDown:
    """Settle nothing more, close the clients' connections, and search the primary."""

    reason: str


@dataclass(frozen=True, slots=True)
class IsReady:
    """The replica counts as ready: when it drops, rule 2 applies."""


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
