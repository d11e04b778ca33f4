"""Refusals recorded from real brokers, and the errors that a user of haclient then sees.

Scripted peers answer with these records. ``tests/brokers`` checks that the real brokers still answer
so.

Recorded from Apache ActiveMQ Artemis 2.56.0, Apache ActiveMQ Classic 5.17.6, Apache Qpid Broker-J
10.1.0, RabbitMQ 4.0.5, RabbitMQ 3.10.8 with the plugin ``rabbitmq_amqp1_0``, and ``broker_stub``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

ADDRESS = "q"
"""The default address in the texts."""


class Product(enum.StrEnum):
    """The broker that answered."""

    ARTEMIS = "Artemis"
    ACTIVEMQ = "ActiveMQ Classic"
    BROKER_J = "Broker-J"
    RABBITMQ_4 = "RabbitMQ 4"
    RABBITMQ_3 = "RabbitMQ 3"
    PAIR = "broker_stub"

    @property
    def is_rabbitmq(self) -> bool:
        """Return whether the broker's Open names RabbitMQ."""
        return self in (Product.RABBITMQ_3, Product.RABBITMQ_4)


class Step(enum.StrEnum):
    """The step at which the broker refuses."""

    SASL = "the SASL outcome is auth"
    MECHANISMS = "its SASL mechanisms need credentials"
    OPEN = "its Open is followed by a Close"
    NO_OPEN = "it does not answer the Open, and resets the connection some seconds later"
    SENDER = "a sender's Attach is followed by a Detach"
    RECEIVER = "a receiver's Attach is followed by a Detach"
    REJECTED = "it settles the message as rejected"
    RELEASED = "it settles the message as released"
    UNSETTLED = "it takes the message, and settles it once there is room"
    DETACHED = "it detaches the link at the message"
    NO_CREDIT = "it grants no credit, and says nothing"
    DROPPED = "it drops the connection at the message, again and again"
    NOTHING = "it accepts, and nobody will ever receive the message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One situation at one broker.

    :ivar address: the address that the client requests.
    :ivar condition: the AMQP error condition, and ``description``: its text, byte for byte.
    :ivar error: the class in ``haclient.errors``; ``None`` if the user sees none.
    :ivar shown: the first line of ``str(error)``, and with ``NO_OPEN`` a part of the second one.
        Replace ``{endpoint}`` by the peer's address, such as ``amqp://127.0.0.1:5672``, and
        ``{timeout}`` by the call's timeout in seconds. Other braces are the broker's.
    :ivar mechanisms: the broker's SASL mechanisms, and ``mechanism``: the client's choice.
    """

    product: Product
    situation: str
    step: Step
    address: str = ADDRESS
    condition: str | None = None
    description: str | None = None
    error: str | None = None
    shown: str = ""
    mechanisms: tuple[str, ...] = ()
    mechanism: str = ""


def _wrong_password(product: Product, mechanism: str, *mechanisms: str) -> Refusal:
    anonymous = mechanism == "ANONYMOUS"
    why = "it requires a user and a password" if anonymous else "it does not accept the user and the password"
    return Refusal(
        product=product,
        situation="no credentials" if anonymous else "wrong password",
        step=Step.SASL,
        error="AuthenticationFailed",
        shown=f"authentication failed at {{endpoint}} ({mechanism}): {why}",
        mechanisms=mechanisms,
        mechanism=mechanism,
    )


def _no_credentials(product: Product, *mechanisms: str) -> Refusal:
    return Refusal(
        product=product,
        situation="no credentials",
        step=Step.MECHANISMS,
        error="AuthenticationFailed",
        shown="authentication failed at {endpoint}: no SASL mechanism in common: the peer offers "
        f"{' '.join(mechanisms)}, and this client may use ANONYMOUS; write a user and a password, as in "
        "amqp://user:password@host",
        mechanisms=mechanisms,
    )


def _not_let_in(product: Product, situation: str, mechanism: str, why: str, description: str) -> Refusal:
    condition = "amqp:unauthorized-access"
    return Refusal(
        product=product,
        situation=situation,
        step=Step.OPEN,
        condition=condition,
        description=description,
        error="AuthenticationFailed",
        shown=f"authentication failed at {{endpoint}} ({mechanism}): {why}: {condition}: {description}",
        mechanism=mechanism,
    )


def _no_virtual_host(situation: str, name: str) -> Refusal:
    return Refusal(
        product=Product.RABBITMQ_4,
        situation=situation,
        step=Step.NO_OPEN,
        error="ConnectionGaveUp",
        shown="it let the user in and did not answer the Open: has it the virtual host "
        f"'vhost:{name}', and may this user use it?",
    )


def _unknown(product: Product, step: Step, description: str, address: str = ADDRESS) -> Refusal:
    return _link(product, "unknown address", step, f"amqp:not-found: {description}", address)


def _link(product: Product, situation: str, step: Step, why: str, address: str = ADDRESS) -> Refusal:
    """Return a refused link.

    :param why: the condition and the description.
    """
    condition, _, description = why.partition(": ")
    is_unknown = product.is_rabbitmq and condition == "amqp:not-found"
    advice = "; declare the queue or exchange first" if is_unknown else ""
    return Refusal(
        product=product,
        situation=situation,
        step=step,
        address=address,
        condition=condition,
        description=description,
        error="LinkRefused",
        shown=f"the primary refused the link to '{address}' ({why}){advice}",
    )


def _not_accepted(
    product: Product, situation: str, step: Step, condition: str | None = None, description: str | None = None
) -> Refusal:
    """Return a message that is settled as rejected or released."""
    outcome = "released" if step is Step.RELEASED else "rejected"
    return Refusal(
        product=product,
        situation=situation,
        step=step,
        condition=condition,
        description=description,
        error="MessageNotAccepted",
        shown=f"the message was {outcome}" + (f" ({condition}: {description})" if condition else ""),
    )


def _never_settled(product: Product, situation: str, step: Step) -> Refusal:
    return Refusal(
        product=product,
        situation=situation,
        step=step,
        error="SendTimeout",
        shown="the primary did not settle the message within {timeout} s",
    )


def _no_credit(product: Product, situation: str) -> Refusal:
    return Refusal(
        product=product,
        situation=situation,
        step=Step.NO_CREDIT,
        error="SendTimeout",
        shown="the primary gives no credit: is the queue full? The message was not sent within {timeout} s",
    )


def _silent(product: Product, situation: str) -> Refusal:
    return Refusal(product=product, situation=situation, step=Step.NOTHING)


_ARTEMIS = (
    _wrong_password(Product.ARTEMIS, "PLAIN", "PLAIN", "ANONYMOUS"),
    _not_let_in(
        Product.ARTEMIS,
        "no credentials",
        "ANONYMOUS",
        "it requires a user and a password",
        "AMQ229031: Unable to validate user from 127.0.0.1:37688. Username: null; "
        "SSL certificate subject DN: unavailable",
    ),
    _unknown(Product.ARTEMIS, Step.SENDER, "AMQ119002: target address q does not exist"),
    _unknown(Product.ARTEMIS, Step.RECEIVER, "AMQ119010: source address does not exist"),
    _link(
        Product.ARTEMIS,
        "a receiver with the capability queue at a MULTICAST address",
        Step.RECEIVER,
        "amqp:illegal-state: Address q is not configured for queue support",
    ),
    _no_credit(Product.ARTEMIS, "full address, BLOCK"),
    _not_accepted(
        Product.ARTEMIS,
        "full address, FAIL",
        Step.REJECTED,
        "amqp:resource-limit-exceeded",
        'AMQ229102: Address "q" is full.',
    ),
    _silent(Product.ARTEMIS, "full address, DROP"),
    _silent(Product.ARTEMIS, "a MULTICAST address without a receiver"),
)
_ACTIVEMQ = (
    _wrong_password(Product.ACTIVEMQ, "PLAIN", "PLAIN", "ANONYMOUS"),
    _wrong_password(Product.ACTIVEMQ, "ANONYMOUS", "PLAIN", "ANONYMOUS"),
    _link(
        Product.ACTIVEMQ,
        "no permission to write",
        Step.SENDER,
        "amqp:unauthorized-access: User joe is not authorized to write to: queue://q",
    ),
    _link(
        Product.ACTIVEMQ,
        "no permission to read",
        Step.RECEIVER,
        "amqp:unauthorized-access: User joe is not authorized to read from: queue://q",
    ),
    _never_settled(Product.ACTIVEMQ, "full queue", Step.UNSETTLED),
    _not_accepted(
        Product.ACTIVEMQ,
        "full queue, sendFailIfNoSpace",
        Step.REJECTED,
        "amqp:resource-limit-exceeded",
        "Usage Manager Memory Limit reached on queue://q. "
        "See http://activemq.apache.org/producer-flow-control.html for more info",
    ),
)
_FULL = "Maximum depth exceeded on 'q' : current=[count: 6, size: 6666], max=[count: 5, size: -1]"
_BROKER_J = (
    _wrong_password(Product.BROKER_J, "SCRAM-SHA-256", "PLAIN", "CRAM-MD5", "SCRAM-SHA-1", "SCRAM-SHA-256"),
    _no_credentials(Product.BROKER_J, "PLAIN", "CRAM-MD5", "SCRAM-SHA-1", "SCRAM-SHA-256"),
    Refusal(
        product=Product.BROKER_J,
        situation="unknown virtual host",
        step=Step.OPEN,
        condition="amqp:not-found",
        description="Unknown hostname in connection open: 'nope'",
        error="ConnectionGaveUp",
        shown="no primary was found: {endpoint}: amqp:not-found: Unknown hostname in connection open: 'nope'",
    ),
    _unknown(
        Product.BROKER_J,
        Step.SENDER,
        "Could not find destination for target 'Target{address=q,durable=none,dynamic=false}'",
    ),
    _unknown(
        Product.BROKER_J,
        Step.RECEIVER,
        "Could not find destination for source 'Source{address=q,durable=none,dynamic=false,"
        "defaultOutcome=Modified{deliveryFailed=true},"
        "outcomes=[amqp:accepted:list, amqp:released:list, amqp:rejected:list]}'",
    ),
    Refusal(
        product=Product.BROKER_J,
        situation="full queue, REJECT",
        step=Step.DETACHED,
        condition="amqp:resource-limit-exceeded",
        description=_FULL,
        error="LinkClosed",
        shown=f"the primary detached the link to 'q' (amqp:resource-limit-exceeded: {_FULL})",
    ),
    _no_credit(Product.BROKER_J, "full queue, PRODUCER_FLOW_CONTROL"),
    _silent(Product.BROKER_J, "full queue, RING"),
)
_RABBITMQ_4 = (
    _wrong_password(Product.RABBITMQ_4, "PLAIN", "PLAIN", "AMQPLAIN", "ANONYMOUS"),
    _no_virtual_host("unknown virtual host", "nope"),
    _no_virtual_host("a virtual host that the user may not use", "team"),
    _unknown(Product.RABBITMQ_4, Step.SENDER, "no queue 'q' in vhost '/'", "/queues/q"),
    _unknown(Product.RABBITMQ_4, Step.RECEIVER, "no queue 'q' in vhost '/'", "/queues/q"),
    _link(
        Product.RABBITMQ_4,
        "unknown exchange",
        Step.SENDER,
        "amqp:not-found: no exchange 'q' in vhost '/'",
        "/exchanges/q/k",
    ),
    _link(
        Product.RABBITMQ_4,
        "a receiver from an exchange",
        Step.RECEIVER,
        'amqp:invalid-field: Attach rejected: {unknown_destination,"/exchanges/q/k"}',
        "/exchanges/q/k",
    ),
    _link(
        Product.RABBITMQ_4,
        "no permission to write",
        Step.SENDER,
        "amqp:unauthorized-access: write access to exchange 'amq.default' in vhost '/' refused "
        "for user 'joe'",
        "/queues/known",
    ),
    _link(
        Product.RABBITMQ_4,
        "no permission to read",
        Step.RECEIVER,
        "amqp:unauthorized-access: read access to queue 'known' in vhost '/' refused for user 'joe'",
        "/queues/known",
    ),
    _not_accepted(Product.RABBITMQ_4, "an exchange without a matching binding", Step.RELEASED),
    _not_accepted(Product.RABBITMQ_4, "full queue, reject-publish", Step.REJECTED),
    _silent(Product.RABBITMQ_4, "full queue, drop-head"),
)
_RABBITMQ_3 = (
    _wrong_password(Product.RABBITMQ_3, "PLAIN", "ANONYMOUS", "PLAIN", "AMQPLAIN"),
    _not_let_in(
        Product.RABBITMQ_3,
        "unknown virtual host",
        "PLAIN",
        "it refuses this user",
        "Access for user 'guest' was refused: insufficient permissions",
    ),
    _unknown(
        Product.RABBITMQ_3,
        Step.RECEIVER,
        "NOT_FOUND - no queue 'q' in vhost '/'",
        "/amq/queue/q",
    ),
    _unknown(
        Product.RABBITMQ_3,
        Step.SENDER,
        "NOT_FOUND - no exchange 'q' in vhost '/'",
        "/exchange/q/k",
    ),
    _never_settled(Product.RABBITMQ_3, "full queue, reject-publish", Step.DROPPED),
    _silent(Product.RABBITMQ_3, "full queue, drop-head"),
    _silent(Product.RABBITMQ_3, "unknown queue, /amq/queue/q, to a sender"),
    _silent(Product.RABBITMQ_3, "an exchange without a matching binding"),
)
_PAIR = (
    _wrong_password(Product.PAIR, "SCRAM-SHA-512", "SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    _no_credentials(Product.PAIR, "SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    _unknown(Product.PAIR, Step.SENDER, "there is no address 'q'"),
    _unknown(Product.PAIR, Step.RECEIVER, "there is no address 'q'"),
    _no_credit(Product.PAIR, "full store"),
)

REFUSALS: tuple[Refusal, ...] = (
    *_ARTEMIS,
    *_ACTIVEMQ,
    *_BROKER_J,
    *_RABBITMQ_4,
    *_RABBITMQ_3,
    *_PAIR,
)
"""Every recorded refusal."""


def refusal(product: Product, situation: str, step: Step | None = None) -> Refusal:
    """Return the recorded refusal of a situation.

    :raises LookupError: if there is none.
    """
    for each in REFUSALS:
        if (each.product, each.situation) == (product, situation) and step in (None, each.step):
            return each
    raise LookupError(f"{product}: {situation}: {step}")
