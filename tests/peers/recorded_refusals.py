"""How brokers refuse, recorded from real ones, and what a user of haclient then sees.

Two kinds of tests use it: those with scripted peers, which answer what is written here, and those of
``tests/brokers``, which check that the real brokers still answer so.

Recorded from Apache ActiveMQ Artemis 2.56.0, Apache Qpid Broker-J 10.1.0, RabbitMQ 3.10.8 with the plugin
``rabbitmq_amqp1_0``, and ``broker_stub``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

ADDRESS = "q"
"""The address in the texts, where no other is named."""


class Product(enum.StrEnum):
    """Who answered."""

    ARTEMIS = "Artemis"
    BROKER_J = "Broker-J"
    RABBITMQ = "RabbitMQ"
    PAIR = "broker_stub"


class Step(enum.StrEnum):
    """Where the broker refuses."""

    SASL = "the SASL outcome is auth"
    MECHANISMS = "its SASL mechanisms need credentials"
    OPEN = "its Open is followed by a Close"
    SENDER = "a sender's Attach is followed by a Detach"
    RECEIVER = "a receiver's Attach is followed by a Detach"
    REJECTED = "it settles the message as rejected"
    DETACHED = "it detaches the link at the message"
    NO_CREDIT = "it grants no credit, and says nothing"
    DROPPED = "it drops the connection at the message, again and again"
    NOTHING = "it accepts, and nobody will ever receive the message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One situation at one broker.

    :ivar address: what the client asks for.
    :ivar condition: the AMQP error condition, and ``description``: its text, byte for byte.
    :ivar error: the class in ``haclient.errors``; ``None`` where the user sees none.
    :ivar shown: the first line of ``str(error)``.  In it ``{endpoint}`` stands for where the peer listens,
        such as ``amqp://127.0.0.1:5672``, and ``{timeout}`` for the timeout of the call in seconds: replace
        them, for other braces are the broker's.
    :ivar mechanisms: what the broker offers, and ``mechanism``: what the client chooses of it.
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
    return Refusal(
        product=product,
        situation="wrong password",
        step=Step.SASL,
        error="AuthenticationFailed",
        shown=f"authentication failed at {{endpoint}} ({mechanism}): "
        "it does not accept the user and the password",
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


def _unknown(product: Product, step: Step, description: str, address: str = ADDRESS) -> Refusal:
    condition = "amqp:not-found"
    advice = "; declare the queue or exchange first" if product is Product.RABBITMQ else ""
    return Refusal(
        product=product,
        situation="unknown address",
        step=step,
        address=address,
        condition=condition,
        description=description,
        error="LinkRefused",
        shown=f"the primary refused the link to '{address}' ({condition}: {description}){advice}",
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
        "it lets nobody in without a user",
        "AMQ229031: Unable to validate user from 127.0.0.1:37688. Username: null; "
        "SSL certificate subject DN: unavailable",
    ),
    _unknown(Product.ARTEMIS, Step.SENDER, "AMQ119002: target address q does not exist"),
    _unknown(Product.ARTEMIS, Step.RECEIVER, "AMQ119010: source address does not exist"),
    Refusal(
        product=Product.ARTEMIS,
        situation="a receiver with the capability queue at a MULTICAST address",
        step=Step.RECEIVER,
        condition="amqp:illegal-state",
        description="Address q is not configured for queue support",
        error="LinkRefused",
        shown="the primary refused the link to 'q' "
        "(amqp:illegal-state: Address q is not configured for queue support)",
    ),
    _no_credit(Product.ARTEMIS, "full address, BLOCK"),
    Refusal(
        product=Product.ARTEMIS,
        situation="full address, FAIL",
        step=Step.REJECTED,
        condition="amqp:resource-limit-exceeded",
        description='AMQ229102: Address "q" is full.',
        error="MessageNotAccepted",
        shown='the message was rejected (amqp:resource-limit-exceeded: AMQ229102: Address "q" is full.)',
    ),
    _silent(Product.ARTEMIS, "full address, DROP"),
    _silent(Product.ARTEMIS, "a MULTICAST address without a receiver"),
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
_RABBITMQ = (
    _wrong_password(Product.RABBITMQ, "PLAIN", "ANONYMOUS", "PLAIN", "AMQPLAIN"),
    _not_let_in(
        Product.RABBITMQ,
        "unknown virtual host",
        "PLAIN",
        "it refuses this user",
        "Access for user 'guest' was refused: insufficient permissions",
    ),
    _unknown(
        Product.RABBITMQ,
        Step.RECEIVER,
        "NOT_FOUND - no queue 'q' in vhost '/'",
        "/amq/queue/q",
    ),
    _unknown(
        Product.RABBITMQ,
        Step.SENDER,
        "NOT_FOUND - no exchange 'q' in vhost '/'",
        "/exchange/q/k",
    ),
    Refusal(
        product=Product.RABBITMQ,
        situation="full queue, reject-publish",
        step=Step.DROPPED,
        error="SendTimeout",
        shown="the primary did not settle the message within {timeout} s",
    ),
    _silent(Product.RABBITMQ, "full queue, drop-head"),
    _silent(Product.RABBITMQ, "unknown queue, /amq/queue/q, to a sender"),
    _silent(Product.RABBITMQ, "an exchange without a matching binding"),
)
_PAIR = (
    _wrong_password(Product.PAIR, "SCRAM-SHA-256", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    _no_credentials(Product.PAIR, "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"),
    _unknown(Product.PAIR, Step.SENDER, "there is no address 'q'"),
    _unknown(Product.PAIR, Step.RECEIVER, "there is no address 'q'"),
    _no_credit(Product.PAIR, "full store"),
)

REFUSALS: tuple[Refusal, ...] = (*_ARTEMIS, *_BROKER_J, *_RABBITMQ, *_PAIR)
"""Every recorded one."""


def refusal(product: Product, situation: str, step: Step | None = None) -> Refusal:
    """The one of that situation.

    :raises LookupError: when there is none.
    """
    for each in REFUSALS:
        if (each.product, each.situation) == (product, situation) and step in (None, each.step):
            return each
    raise LookupError(f"{product}: {situation}: {step}")
