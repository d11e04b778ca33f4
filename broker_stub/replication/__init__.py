"""Replication of messages from the primary to its backups; docs/replication.md explains the design."""

from __future__ import annotations
