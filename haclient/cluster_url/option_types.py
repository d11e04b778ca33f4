"""The options of a cluster URL as keyword arguments, for type checkers.

Generated from the table in ``options`` by ``python -m scripts.generate``; do not edit.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal, TypedDict


class OptionArguments(TypedDict, total=False):
    """Every option by its name, as text or as a Python value; docs/options.md says what each means."""

    stagger: float | str | timedelta
    max_dials: int | str
    attempt_timeout: float | str | timedelta
    stable_after: float | str | timedelta
    deadline: float | str | timedelta | None
    startup_deadline: float | str | timedelta | None
    refusal_timeout: float | str | timedelta | None
    max_attempts: int | str | None
    max_redirects: int | str
    redirects: Literal["members", "any", "none"]
    pushed_members: Literal["add", "replace", "ignore"]
    backoff_base: float | str | timedelta
    backoff_factor: float | str
    backoff_max: float | str | timedelta
    backoff_strategy: Literal["adaptive", "full"]
    max_retry_after: float | str | timedelta
    max_spread: float | str | timedelta
    dr: str | tuple[str, ...] | None
    dr_after: float | str | timedelta
    standby: Literal["none", "outage", "warm"]
    park_timeout: float | str | timedelta
    heartbeat: float | str | timedelta
    delivery: Literal["at-least-once", "at-most-once"]
    duplicate_detection: bool | str
    window: int | str
    credit: int | str
    max_frame_size: int | str
    client_id: str | None
    vhost: str | None
    sasl_mechanisms: str | tuple[str, ...] | None
    sasl_plaintext: bool | str
    tls_ca: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    tls_verify: bool | str
    tls_server_name: str | None
    nameserver: str | None
    dns_timeout: float | str | timedelta
    send_timeout: float | str | timedelta | None
    call_timeout: float | str | timedelta | None
    reattach_timeout: float | str | timedelta
    close_timeout: float | str | timedelta
    telemetry_attributes: str | None
