"""A reference AMQP 1.0 broker: the members of an active/passive cluster, and the commands to manage them."""

from __future__ import annotations
