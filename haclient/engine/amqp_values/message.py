"""The types of messages and bodies, for type checkers and the API page.

Rules
-----
* At run time ``Message`` is ``proton.Message`` itself.  So messages of programs written for proton can be
  passed on, and ``isinstance`` agrees in both directions.
* Type checkers see a subclass.  proton annotates ``properties`` as ``None``, and its type of bodies lacks
  values that it does send: tuples, arrays, points in time.
* Stubs for ``proton`` are no alternative: they would also change how a program's own use of proton is
  checked.  A subclass at run time would be a second class of messages.
* The client returns a ``Message``, and accepts any ``proton.Message``.

Source: AMQP 1.0 part 3, section 3.2 (message format).
"""

# mypy: disable-error-code="assignment, override"
# The class differs from proton's annotations on purpose.

from __future__ import annotations

import datetime
import uuid
from typing import TYPE_CHECKING, Any, TypeAlias

import proton

Body: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | uuid.UUID
    | proton.Described
    | proton.Array
    | list["Body"]
    | dict[Any, "Body"]
    | None
)
"""The body of a received message, and each value inside a list or map of it.

AMQP's other types arrive as proton's subclasses of these.  ``proton.timestamp`` (milliseconds since 1970),
``ubyte``, ``uint``, ``ulong`` and the like are an ``int``; ``float32`` is a ``float``; ``symbol`` and
``char`` are a ``str``.  ``decimal128`` is ``bytes``; ``decimal32`` and ``decimal64`` are an ``int`` of the
bits.
In a ``match``, put a subclass before its base, and ``bool`` before ``int``.

Several *data* sections are one ``bytes``, in order.  One *amqp-sequence* section is a ``list``; several are a
``SequenceSections``, a list with the list of each.
"""


class SequenceSections(list[Any]):
    """The body of a message with several *amqp-sequence* sections: a list with the list of each.

    If a received message with such a body is sent on, it keeps its sections.  To send such a body, use
    ``Message(SequenceSections([[1, 2], [3]]), inferred=True)``.

    Source: AMQP 1.0 part 3, section 3.2.7.
    """

    __slots__ = ()


SendableBody: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | bytearray
    | memoryview
    | datetime.datetime
    | uuid.UUID
    | proton.Described
    | proton.Array
    | list[Any]
    | tuple[Any, ...]
    | dict[Any, Any]
)
"""The body of a message to send, with or without a ``Message`` around it.

A ``tuple`` is sent as a list, a ``datetime`` (which needs a time zone) as a timestamp, ``bytearray`` and
``memoryview`` as binary: they arrive as ``list``, ``proton.timestamp`` and ``bytes``.
"""

if TYPE_CHECKING:

    class Message(proton.Message):
        """A message: a body, and the sections that AMQP defines around it.

            Message({"item": "tea"}, properties={"shop": 7}, subject="order", ttl=60)

        At run time this is ``proton.Message``.  Each attribute is also a keyword of the constructor, and can
        be assigned.  An unknown name is an ``AttributeError``, a number that its field cannot hold an
        ``OverflowError``.  proton keeps ``address``, ``subject`` and similar fields as C strings: the text is
        cut at a NUL when it is assigned or read.  The body and the maps may contain a NUL.

        A failover changes no attribute: ``send`` encodes the message once, and the client sends the same
        bytes again to the next primary.  An assignment after ``send`` has no effect on that message.
        Whether the next primary keeps the value of a field depends on the broker.
        """

        def __init__(
            self,
            body: SendableBody | None = None,
            *,
            inferred: bool = False,
            durable: bool = False,
            priority: int = 4,
            ttl: float = 0.0,
            first_acquirer: bool = False,
            delivery_count: int = 0,
            instructions: dict[Any, Any] | None = None,
            annotations: dict[Any, Any] | None = None,
            id: str | bytes | uuid.UUID | int | None = None,  # noqa: A002 - proton's name
            user_id: bytes = b"",
            address: str | None = None,
            subject: str | None = None,
            reply_to: str | None = None,
            correlation_id: str | bytes | uuid.UUID | int | None = None,
            content_type: str | None = None,
            content_encoding: str | None = None,
            expiry_time: float = 0.0,
            creation_time: float = 0.0,
            group_id: str | None = None,
            group_sequence: int = 0,
            reply_to_group_id: str | None = None,
            properties: dict[str, Any] | None = None,
        ) -> None: ...

        @property
        def body(self) -> Body:
            """The content; ``None``, the default, is a message without a body.

            A received body is a ``haclient.Body``; a ``haclient.SendableBody`` can be assigned.
            Sections *data*, *amqp-sequence* and *amqp-value* (part 3, sections 3.2.6 to 3.2.8): see
            ``inferred``.
            """

        @body.setter
        def body(self, value: SendableBody | None) -> None: ...

        inferred: bool
        """If true, the type of the body chooses its section: ``bytes`` a *data* section, a list an
        *amqp-sequence*.  With ``False``, the default, any body is an *amqp-value*.

        ``send(b"...")`` without a ``Message`` sends a *data* section.  On a received message ``inferred`` is
        ``True`` if the body arrived in a *data* or *amqp-sequence* section.  AMQP has no such field.
        """

        durable: bool
        """If true, the broker keeps the message when it dies; default ``False``.
        Section *header* (part 3, section 3.2.1).

        The client ignores it on a message to send: the argument ``durable`` of ``create_sender`` and ``send``
        decides, and is ``True`` by default.  The drop-in sends it, as proton does.  A broker's failover may
        lose a message that is not durable.
        """

        priority: int
        """The priority, 0 to 255; higher is delivered sooner; default 4.  Section *header*.

        Brokers differ in how many priorities they distinguish; some ignore them.
        """

        ttl: float
        """The time to live, in seconds; 0, the default, is no limit.  Section *header*.

        AMQP carries whole milliseconds: less than 0.001 is no limit.  More than 4,294,967.295 (49 days) and
        negative numbers are an ``OverflowError``.

        The broker starts the time when the message arrives.  So a wait for a primary in the client does not
        count.  If the message is sent again after a failover, the time starts again.  Use ``expiry_time`` for
        a fixed moment, and ``send(timeout=...)`` to bound the wait.
        On a received message it is the remaining time, if the broker counts down.
        """

        first_acquirer: bool
        """True if no other receiver had the message before; default ``False``.  Section *header*.

        Only brokers set it.
        """

        delivery_count: int
        """The number of earlier deliveries of the message that failed; default 0.  Section *header*.

        Brokers set it.  A broker redelivers a message that was not settled when its connection was lost.
        Whether that counts, and whether the next primary knows the count, depends on the broker.  A count of
        0 does not prove that the message was never processed.
        """

        instructions: dict[str | int, Any] | Any
        """Delivery annotations: entries for the next hop only; default ``None``.
        Section *delivery-annotations* (part 3, section 3.2.2).

        Keys are symbols (a ``str`` becomes one) or ``proton.ulong``.  The type omits ``None``, for the reason
        given at ``properties``.
        """

        annotations: dict[str | int, Any] | Any
        """Message annotations: entries for brokers and gateways; default ``None``.
        Section *message-annotations* (part 3, section 3.2.3).

        Keys are as in ``instructions``.  Keys that brokers define begin with ``x-opt-``.
        """

        id: str | bytes | uuid.UUID | int | None
        """The application's id of the message, which AMQP calls ``message-id``; default ``None``.
        Section *properties* (part 3, section 3.2.4).

        An ``int`` is 0 to 2^64 - 1.  The client does not set it.  It does not prevent duplicates; the
        argument ``duplicate_id`` of ``send`` does.
        """

        user_id: bytes
        """The user who is responsible for the message; default ``b""``.  Section *properties*.

        A broker may refuse any user other than the one that the connection logged in with.
        """

        address: str | None
        """The node that the message is for, which AMQP calls ``to``; default ``None``.  Section *properties*.

        Target of the message if the sender has no address (``create_sender(None)``).
        """

        subject: str | None
        """A summary, or the kind of the message; default ``None``.  Section *properties*.

        Exchanges may route by it.
        """

        reply_to: str | None
        """The node for replies; default ``None``.  Section *properties*.

        The address of a receiver with ``dynamic=True`` ends with its connection.  After a failover the
        receiver has a new address, and requests that were sent before name the old one.
        """

        correlation_id: str | bytes | uuid.UUID | int | None
        """The ``id`` of the request that this message answers; default ``None``.  Section *properties*."""

        content_type: str
        """The MIME type of a body in a *data* section.  Section *properties*.

        Without one, proton sends nothing, and returns the text ``"None"``.
        """

        content_encoding: str
        """The compression of the body, such as ``gzip``; the client does not compress.  Section *properties*.

        Without one, proton sends nothing, and returns the text ``"None"``.
        """

        expiry_time: float
        """The time at which the message expires, in seconds since 1970 UTC; 0, the default, is never.
        Section *properties*, where AMQP calls it ``absolute-expiry-time`` and counts milliseconds.

        A wait in the client or a failover does not change it.  The clocks of client and broker must agree.
        """

        creation_time: float
        """The time at which the message was created, in seconds since 1970 UTC; 0, the default, is unknown.
        Section *properties*, where AMQP counts milliseconds.

        The client does not set it.
        """

        group_id: str | None
        """The group of the message, in JMS ``JMSXGroupID``; default ``None``.  Section *properties*.

        A broker gives the messages of a group to one receiver.  After a failover it may choose another.
        """

        group_sequence: int
        """The position of the message in its group, 0 to 2^32 - 1; default 0.  Section *properties*."""

        reply_to_group_id: str | None
        """The ``group_id`` for replies; default ``None``.  Section *properties*."""

        properties: dict[str, Any] | Any
        """The application's entries, by name; default ``None``.
        Section *application-properties* (part 3, section 3.2.5).

        AMQP allows no lists and maps as values.  Selectors of receivers read these entries.  The attribute is
        ``None`` if the sender set none.  The type omits ``None``, so that an application can index an entry
        that its messages always have.  ``delivery.message`` does not include the duplicate-detection id: see
        ``Delivery.duplicate_id``.
        """

else:
    Message = proton.Message
