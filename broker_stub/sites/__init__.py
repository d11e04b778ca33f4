"""Asynchronous replication between two sites; docs/sites.md is its theory."""

from __future__ import annotations
