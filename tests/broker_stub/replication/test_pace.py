"""The pause of a backup between two searches for its primary, however long there is none."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from broker_stub.cli.cluster_options import ClusterArguments
from broker_stub.election.arbiter.urls import MemoryArbiter
from broker_stub.member.member import ClusterOptions, Member, MemberHost, SiteSteps
from broker_stub.queueing.nodes import Addresses
from broker_stub.sites.backup_state import BackupState
from broker_stub.sites.reconcile import reconcile
from broker_stub.store import MemoryStore
from haclient import Credentials, aio

SECOND = 1.0


def test_the_search_itself_rests_a_second_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The search's own default is ten, meant for thousands of clients; the parked ones wait for this one
    search.
    """
    given: dict[str, Any] = {}
    monkeypatch.setattr(aio, "ConnectionFactory", lambda _url, **options: given.update(options))
    arguments = ClusterArguments(
        arbiter=f"directory:{tmp_path}",
        store="memory",
        broker_url="amqp://a,b",
        credentials=Credentials(user="cluster-admin", password="secret"),
        tls_ca=None,
        name="a",
        backup_timeout=10.0,
        arbiter_interval=3.0,
        force_primary=False,
    )
    arguments._factory(())
    assert given["backoff_max"] <= SECOND


async def test_a_backup_rests_a_second_at_most_after_a_primary_that_it_could_not_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random.Random, "uniform", lambda _self, _low, high: high)
    member = Member(
        ClusterOptions(name="a"),
        cast("MemberHost", None),
        cast("Addresses", None),
        MemoryStore(duplicates=1),
        MemoryArbiter(),
        lambda _members, _broker_url: cast("aio.ConnectionFactory", None),
        SiteSteps(state=BackupState, reconcile=reconcile),
    )
    assert max(member._following._pause() for _ in range(100)) <= SECOND
