"""Properties of factories, connections and deliveries that are the same in both APIs.

Also the constructors of a factory from configuration.  Calls that wait are in each API.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self, Unpack

from haclient.api.pickling import not_picklable
from haclient.cluster_url.endpoint import Endpoint
from haclient.core.connection import ConnectionCore, State
from haclient.core.delivery import DeliveryCore
from haclient.discovery.topology import Topology
from haclient.engine.amqp_values.message import Body, Message
from haclient.factory.factory_core import FactoryArguments, FactoryCore
from haclient.telemetry.redact import Redactor


class BaseFactory:
    """A connection factory."""

    __slots__ = ("_core",)

    __reduce__ = not_picklable

    _core: FactoryCore

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, **arguments: Unpack[FactoryArguments]
    ) -> Self:
        """Make a factory from the variables ``HACLIENT_URL``, ``HACLIENT_USER`` etc.; see ``configuration``.

        :param environ: the variables; ``None`` for the environment of the process.
        :param arguments: arguments of ``ConnectionFactory``, which override the variables.
        :raises ConfigurationError: if a variable is unknown, missing or wrong.
        """
        from haclient import configuration  # noqa: PLC0415 - loads TOML, JSON and proton's reactor

        return configuration.from_env(environ).make(cls, arguments)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], **arguments: Unpack[FactoryArguments]) -> Self:
        """Make a factory from the keys ``url``, ``user`` and so on; see ``configuration``."""
        from haclient import configuration  # noqa: PLC0415 - loads TOML, JSON and proton's reactor

        return configuration.from_mapping(mapping).make(cls, arguments)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str] | None = None, **arguments: Unpack[FactoryArguments]
    ) -> Self:
        """Make a factory from a TOML or JSON file, by default proton's ``connect.json``.

        See ``configuration``.
        """
        from haclient import configuration  # noqa: PLC0415 - loads TOML, JSON and proton's reactor

        return configuration.from_file(path).make(cls, arguments)

    @property
    def topology(self) -> Topology | None:
        """The known state of the cluster; ``None`` before the first connect."""
        return self._core.topology

    @property
    def client_id(self) -> str:
        """The container id of its connections, or the prefix of their ids."""
        return self._core.client_id

    @property
    def redactor(self) -> Redactor:
        """Redacts the credentials in use, for observers that write hosts or errors."""
        return self._core.redactor


class BaseConnection:
    """A connection."""

    __slots__ = ("_core",)

    __reduce__ = not_picklable

    _core: ConnectionCore

    @property
    def state(self) -> State:
        """The state: connecting, connected, reconnecting, closed or failed."""
        return self._core.state

    @property
    def endpoint(self) -> Endpoint | None:
        """The member of the current or last session."""
        return self._core.endpoint

    @property
    def generation(self) -> int | None:
        """The generation of that member, if announced; after parking, the first Attach announces it."""
        return self._core.generation


class BaseDelivery:
    """One received message."""

    __slots__ = ("_core",)

    __reduce__ = not_picklable

    _core: DeliveryCore

    @property
    def message(self) -> Message:
        """The message without its duplicate-detection id, so that it can be forwarded.

        :raises UndecodableMessage: if it cannot be decoded completely: reject the delivery, or use ``data``.
        """
        return self._core.message

    @property
    def body(self) -> Body:
        """The body of the message, of any type; ``match`` has a case for each type.

        :raises UndecodableMessage: as for ``message``.
        """
        return self._core.message.body

    @property
    def duplicate_id(self) -> Any:
        """The duplicate-detection id that the sender set; ``None`` for an id that haclient generated."""
        return self._core.duplicate_id

    @property
    def data(self) -> bytes:
        """The message as received, encoded."""
        return self._core.data

    @property
    def settled(self) -> bool:
        """Return whether the delivery was settled here."""
        return self._core.settled
