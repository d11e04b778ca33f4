"""Publishes the events of a factory's connections to its subscriptions."""

from __future__ import annotations

import weakref

from haclient.events import Closed, Event, GaveUp
from haclient.events.event_log import AsyncEvents, BlockingEvents, LogSubscription, Subscription


class EventHub:
    """The subscriptions of one factory, each to one connection or to all; the first is the log."""

    def __init__(self) -> None:
        self._subscriptions: dict[Subscription, int | None] = {LogSubscription(): None}
        # Weak references: an iterator that the application has dropped must not collect events.
        self._iterators: weakref.WeakKeyDictionary[AsyncEvents | BlockingEvents, int | None] = (
            weakref.WeakKeyDictionary()
        )

    def subscribe(self, subscription: Subscription, connection: int | None = None) -> None:
        """Send the events of one connection (or of all, with ``None``) to a subscription."""
        self._subscriptions[subscription] = connection

    def subscribe_iterator(self, iterator: AsyncEvents | BlockingEvents, connection: int | None) -> None:
        """Subscribe an iterator for as long as the application keeps it."""
        self._iterators[iterator] = connection

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop sending events to a subscription, and end it."""
        self._subscriptions.pop(subscription, None)
        if isinstance(subscription, AsyncEvents | BlockingEvents):
            self._iterators.pop(subscription, None)
        subscription.end()

    def publish(self, connection: int, event: Event) -> None:
        """Send an event of a connection to its subscriptions; the last event of the connection ends them."""
        for iterator in [each for each in self._iterators if each.closed]:
            del self._iterators[iterator]
        for subscription, wanted in (*self._subscriptions.items(), *self._iterators.items()):
            if wanted is None or wanted == connection:
                subscription.put(event)
            if wanted == connection and isinstance(event, Closed | GaveUp):
                self.unsubscribe(subscription)

    def close(self) -> None:
        """End every subscription."""
        for subscription in (*self._subscriptions, *self._iterators):
            subscription.end()
