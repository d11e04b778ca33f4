"""How a settled message gets onto the backups; docs/replication.md is its theory."""

from __future__ import annotations
