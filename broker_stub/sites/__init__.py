"""Asynchronous replication between two sites; docs/sites.md explains the theory."""

from __future__ import annotations
