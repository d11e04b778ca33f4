"""``python -m broker_stub``."""

from __future__ import annotations

from broker_stub.cli import main

main()
