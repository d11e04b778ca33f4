"""The links of one connection: they outlive its sessions, and are attached again over each new one.

A link whose ``attach`` raises (the application's ``configure``) fails alone; the others go on.

Source: AMQP 1.0 part 2, section 2.6.1 (names of links).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import TypeVar

import proton

from haclient.cluster_url.options import Options
from haclient.core.receiver import ReceiverCore
from haclient.core.sender import SenderCore
from haclient.engine.links import ReceiverLink, SenderLink
from haclient.engine.protocol import Engine
from haclient.engine.settings import MAX_PARKED_LINKS
from haclient.errors import HaclientError, LinkClosed, another

logger = logging.getLogger("haclient")

LinkCore = SenderCore | ReceiverCore
L = TypeVar("L", SenderCore, ReceiverCore)


class LinkSet:
    """Creates the links of a connection, and attaches them over its sessions.

    :param name_prefix: how link names begin that the application does not choose.
    :param on_attached: called at the peer's answer to each Attach.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        name_prefix: str,
        on_attached: Callable[[SenderLink | ReceiverLink], None],
    ) -> None:
        self._loop = loop
        self._options = options
        self._name_prefix = name_prefix
        self._on_attached = on_attached
        self._links: dict[LinkCore, None] = {}
        # Of the links that are not closed, by direction.
        self._names: set[tuple[type, str]] = set()
        self._named = 0
        self._error: HaclientError | None = None
        self._engine: Engine | None = None
        self._session: proton.Session | None = None
        # The links attached already over a parked connection, which may become the session.
        self._attached_ahead: dict[LinkCore, Engine] = {}

    # -- the application's side ---------------------------------------------------------------

    def create_sender(
        self,
        address: str | None,
        *,
        name: str | None = None,
        configure: Callable[[proton.Sender], None] | None = None,
    ) -> SenderCore:
        """Create a sender; its ``opened`` is done when the primary accepts the link.

        :raises ValueError: when the connection has a sender of this name, or the address is empty.
        """
        if address == "":
            raise ValueError("an address is a name; None asks for the anonymous terminus")
        core = SenderCore(
            self._loop,
            self._link_name(SenderCore, name),
            address,
            window=self._options.window,
            at_most_once=self._options.delivery == "at-most-once",
            configure=configure,
        )
        return self._register_named(core)

    def create_receiver(
        self,
        address: str | None,
        *,
        name: str | None = None,
        credit: int | None = None,
        dynamic: bool = False,
        browse: bool = False,
        configure: Callable[[proton.Receiver], None] | None = None,
    ) -> ReceiverCore:
        """Create a receiver; its ``opened`` is done when the primary accepts the link.

        :param credit: 0 grants none: what ``configure`` grants is all there is.
        :raises ValueError: when the connection has a receiver of this name, or the credit is negative.
        """
        credit = self._options.credit if credit is None else credit
        if credit < 0:
            raise ValueError(f"credit is 0 or more, not {credit}")
        core = ReceiverCore(
            self._loop,
            self._link_name(ReceiverCore, name),
            address,
            credit=credit,
            dynamic=dynamic,
            browse=browse,
            configure=configure,
        )
        return self._register_named(core)

    def register(self, core: L) -> L:
        """Add a link, and attach it if there is a session.

        :raises HaclientError: when the connection is closed.
        """
        if self._error is not None:
            raise another(self._error)
        if self._engine is not None and self._session is not None and self._engine.close_reason is None:
            core.attach(self._engine, self._session)
        self._links[core] = None
        core.on_attached = self._on_attached
        core.on_closed = lambda: self._links.pop(core, None)
        return core

    def _link_name(self, kind: type[LinkCore], name: str | None) -> str:
        """The name of a new link: peers take two of one name and direction for one (section 2.6.1)."""
        if name:
            if (kind, name) in self._names:
                raise ValueError(f"the link name {name!r} is in use")
            return name
        while True:
            self._named += 1
            made = f"{self._name_prefix}-{self._named}"
            if (kind, made) not in self._names:
                return made

    def _register_named(self, core: L) -> L:
        key = type(core), core.name
        self.register(core)
        self._names.add(key)

        def remove() -> None:
            self._links.pop(core, None)
            self._names.discard(key)

        core.on_closed = remove
        return core

    # -- the connection's side ----------------------------------------------------------------

    def attach_ahead(self, engine: Engine, session: proton.Session) -> None:
        """Attach as many links as a member parks together with a parked connection."""
        ready = (link for link in self._links if link.may_attach_ahead)
        self._attached_ahead = dict.fromkeys(itertools.islice(ready, MAX_PARKED_LINKS), engine)
        for link in self._attached_ahead:
            self._attach(link, engine, session)

    def on_connected(self, engine: Engine, session: proton.Session) -> int:
        """Attach every link over a new session.  Returns how many messages are sent again."""
        self._engine, self._session = engine, session
        replayed = 0
        for link in tuple(self._links):
            replayed += link.to_replay
            if engine.close_reason is None and self._attached_ahead.get(link) is not engine:
                self._attach(link, engine, session)
        self._attached_ahead.clear()
        return replayed

    def on_disconnected(self) -> int:
        """Prepare every link for the next session.  Returns how many messages were unsettled."""
        self._engine = self._session = None
        unsettled = sum(link.unsettled for link in self._links)
        for link in tuple(self._links):
            link.on_disconnected()
        return unsettled

    def writable_again(self) -> None:
        """Let every link send again: the socket takes bytes."""
        for link in tuple(self._links):
            link.writable_again()

    def fail(self, error: HaclientError) -> None:
        """End every link with this error; no link can be created any more."""
        self._error = error
        for link in tuple(self._links):
            link.fail(error)
        self._links.clear()
        self._names.clear()
        self._attached_ahead.clear()
        self._engine = self._session = None

    def _attach(self, link: LinkCore, engine: Engine, session: proton.Session) -> None:
        try:
            link.attach(engine, session)
        except Exception as error:  # the application's ``configure``
            logger.exception("the link to %r cannot be attached", link.address)
            link.fail(LinkClosed(f"the link cannot be attached again: {type(error).__name__}"))
