"""What each code means, and what to do: ``haclient help NAME`` prints it, docs/errors.md has the same.

A code is that of an error class, the value of a ``FailureReason`` (how an attempt ended), or a more exact
name where the client knows more than the class says.  Codes do not change: scripts and alarms refer to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """One code.

    :param meaning: what has happened; the first sentence stands alone in lists.
    :param remedy: what to look at, and what to change.
    """

    meaning: str
    remedy: str

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return self.meaning.partition(". ")[0].removesuffix(".")


ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        # -- before there is a connection
        "bad-url": Entry(
            "The cluster URL, or an option, is wrong. The text says what is, and how to write it.",
            "`haclient explain URL` shows what a URL means. docs/options.md lists the options.",
        ),
        "bad-configuration": Entry(
            "An environment variable, or a key of a file or mapping, is wrong or missing. The text names it.",
            "Correct it; docs/configuration.md lists the keys. A variable that begins with `HACLIENT_` "
            "and that the client does not know is an error as well.",
        ),
        "sasl-unavailable": Entry(
            "The SASL mechanism that the application asks for is not in this build of python-qpid-proton.",
            "Install pkg-config, libssl-dev, libsasl2-dev and libsasl2-modules (RPM: pkgconf-pkg-config, "
            "openssl-devel, cyrus-sasl-devel, cyrus-sasl-scram), and reinstall python-qpid-proton from "
            "source; or name PLAIN in the option `sasl_mechanisms`, with TLS.",
        ),
        "wrong-thread": Entry(
            "A blocking call was made where it would wait for itself, or after a fork.",
            "Do not call the blocking API in `configure` or in the callback of a future: both run on "
            "haclient's own thread. `on_event` has another and may call. After a fork "
            "make a new factory in the child.",
        ),
        # -- a search that found no primary
        "no-primary": Entry(
            "No member served as primary. The error lists what each endpoint answered.",
            "Is the cluster up, and is one of its members primary (`haclient members URL`)? Are all "
            "members in the URL? A `ConnectionGaveUp`: the answers were final, or `max_attempts` was "
            "reached. A `SendTimeout` or `LinkTimeout`: the call ended during a failover; "
            "raise its `timeout`.",
        ),
        "deadline-exceeded": Entry(
            "No member served as primary in time. The error lists what each endpoint answered.",
            "As for no-primary. The time is the `timeout` of `connect`, or the option `startup_deadline`, "
            "at the first connect, and the option `deadline` after a loss. "
            "Raise it if the cluster needs longer.",
        ),
        "not-allowed": Entry(
            "Every member refuses the connection with `amqp:not-allowed`. The text has a member's words.",
            "Brokers mean a limit of connections, a virtual host that this user may not use (option "
            "`vhost`), or another client with the same `client_id`. The broker's log says which.",
        ),
        "unresolved": Entry(
            "A name has no address: DNS and the hosts file do not know it, or no server answered.",
            "Check the spelling, and `getent hosts NAME` on the same machine. The option `nameserver` "
            "asks another server.",
        ),
        "refused": Entry(
            "Nothing listens at this port.",
            "Is the broker running, and is it the port for AMQP (5672, with TLS 5671)? A broker in a "
            "container must publish the port.",
        ),
        "unreachable": Entry(
            "There is no route to this address, or its network is down.",
            "Check the address, the interface and the VPN. In IPv4-only networks an IPv6 address of the "
            "name is tried as well, which does no harm.",
        ),
        "timed-out": Entry(
            "The endpoint did not answer within `attempt_timeout`. The text says how far the attempt came.",
            "No TCP connection: a firewall drops packets, or the host is down. TCP connected, then "
            "silence: the process hangs or is stopped, or the port belongs to another protocol that waits "
            "for more.",
        ),
        "ended": Entry(
            "The peer closed the socket before the session was usable.",
            "Look into the broker's log. Common causes: it is starting or dying, it has too many "
            "connections, or a proxy lost its member. After SASL: RabbitMQ 4 closes without a word when the "
            "user may not use the virtual host (option `vhost`), or a limit of connections is reached.",
        ),
        "closed": Entry(
            "The peer refused the connection by a Close. The text has its condition and description.",
            "A passive member does this: the client goes on to the next. If every member does, read the "
            "condition; docs/passive-members.md explains the common ones.",
        ),
        "redirected": Entry(
            "The member named another one to connect to, and the client goes there.",
            "Nothing: a passive member that knows its primary does this.",
        ),
        "redirect-refused": Entry(
            "The member named another one that the client must not go to. It is insecure or foreign, or "
            "the redirects go in a circle or are too many.",
            "The text says which, and the option that would allow it: `redirects` or `max_redirects`. From "
            "TLS to no TLS the client never goes.",
        ),
        "stale-primary": Entry(
            "A member serves with an older generation than one that was seen before: it was replaced.",
            "Nothing, if it is just being stopped. If it lasts, two members believe to be primary: look "
            "at both. A new `broker-stub pair` counts its generations from 1 again: a client that saw a "
            "failover of the pair before refuses it at first, so start the client anew, or keep the store"
            " (`--store`). If only such members serve for `refusal_timeout` (60 s), the newer primary is "
            "lost, or an impostor announced its generation: the client forgets it (event "
            "`GenerationsForgotten`) and takes the next that serves. What a member announces that has not"
            " proved who it is, by SCRAM or by a TLS certificate with a name that the URL allows, makes "
            "none stale that has.",
        ),
        "made-room": Entry(
            "The attempt had no TCP connection when `max_dials` was reached, and was ended for another one.",
            "Nothing. If it happens often, members are slow to accept: raise `max_dials`.",
        ),
        "lost-race": Entry(
            "Another attempt was usable first.",
            "Nothing: the client dials the next member while one hangs.",
        ),
        "stopped": Entry(
            "The search ended while the attempt was under way.",
            "Nothing: the deadline passed, or the connection was closed. The error says which.",
        ),
        # -- another protocol than the URL says
        "not-amqp": Entry(
            "The port does not speak AMQP 1.0. The text shows what it answered.",
            "Correct the port: AMQP has 5672, with TLS 5671, unless the broker is configured otherwise.",
        ),
        "amqp-0-9-1": Entry(
            "The port speaks AMQP 0-9-1, which is another protocol than AMQP 1.0.",
            "RabbitMQ 4 speaks both at the same port. For RabbitMQ 3: `rabbitmq-plugins enable "
            "rabbitmq_amqp1_0`. Other brokers have another port for AMQP 1.0, or none.",
        ),
        "amqp-0-10": Entry(
            "The port speaks AMQP 0-10, which is another protocol than AMQP 1.0.",
            "qpidd speaks both when its module `amqp.so` is loaded (`--load-module`).",
        ),
        "no-sasl": Entry(
            "The port speaks AMQP 1.0 without SASL, with which this client always begins.",
            "Turn SASL on at the peer; ANONYMOUS is enough.",
        ),
        "http-port": Entry(
            "The port speaks HTTP: it is a web server, a management console or a proxy.",
            "Correct the port. Consoles commonly have 8161 or 15672 where AMQP has 5672.",
        ),
        "tls-port": Entry(
            "The port speaks TLS, and the URL begins with `amqp://`.",
            "Write `amqps://`. With an authority of your own add the option `tls_ca`.",
        ),
        "plain-port": Entry(
            "The port does not speak TLS, and the URL begins with `amqps://`.",
            "Take the broker's TLS port, commonly 5671. Write `amqp://` if the connection need not be "
            "encrypted.",
        ),
        "no-answer": Entry(
            "The peer accepted the TCP connection and closed it without a word.",
            "With `amqp://` it may be a TLS port, which wants `amqps://`; with `amqps://` a plain port. A "
            "proxy or load balancer without a live member behind it does the same, and a broker that is "
            "starting. So does ActiveMQ at its limit of connections, and its log says so: raise "
            "`maximumConnections` in the URI of its transport connector, or open fewer connections.",
        ),
        "tls-failed": Entry(
            "The TLS handshake failed. The text has the reason that OpenSSL gives.",
            "Common causes: the broker wants a client certificate (`tls_cert`, `tls_key`), or both have "
            "no version of TLS in common.",
        ),
        "tls-verification": Entry(
            "The certificate of the peer is not trusted, has expired, or carries another name.",
            "Name the authority by the option `tls_ca`; if the URL has an address or an alias, name the "
            "certificate's host by `tls_server_name`. `openssl s_client -connect HOST:PORT` shows the "
            "certificate.",
        ),
        # -- credentials
        "authentication": Entry(
            "The peer refuses the credentials, and asking again will not help.",
            "Check user and password: in a URL `@`, `:`, `/` and `#` of a password are percent-encoded. "
            "Check what the broker's log says. A function as `credentials` is asked again for others.",
        ),
        "authentication-temporary": Entry(
            "The peer could not check the credentials now, or the application may supply others.",
            "The client tries again. Look at the broker's user directory, or at the function that "
            "supplies the credentials.",
        ),
        "unauthorized": Entry(
            "The peer refuses the user by a Close with `amqp:unauthorized-access`, after SASL let it in. "
            "The text has the peer's words.",
            "Artemis refuses a client without a user so: write a user and a password. Others mean the rights "
            "of the user: may it use this virtual host (option `vhost`)? A function as `credentials` is "
            "asked again for others.",
        ),
        "no-common-mechanism": Entry(
            "No SASL mechanism is offered by the peer and allowed to this client. The text lists both.",
            "Without a user the client may use ANONYMOUS alone: write a user and a password. The option "
            "`sasl_mechanisms` names others; PLAIN without TLS needs `sasl_plaintext`. SCRAM needs Cyrus "
            "SASL with the package libsasl2-modules.",
        ),
        "unproven-server": Entry(
            "The peer let the client in and did not prove, as SCRAM asks, that it knows the password itself.",
            "Find out what listens there: it may be a stranger that passes for the broker. It has learned "
            "nothing of the password, but what SCRAM shows can be guessed at: change a short password.",
        ),
        "scram-iterations": Entry(
            "The peer asks for fewer iterations of SCRAM than 4,096 (RFC 7677), or for more than 65,536. The "
            "client does not answer.",
            "Raise the count where the broker keeps its users, and set their passwords again. If the broker "
            "asks for enough, find out what listens there: whoever asks for few wants to guess the password.",
        ),
        # -- a connection and its links
        "connection-closed": Entry(
            "The connection was closed by the application, or gave up earlier.",
            "Make a new one. For a message that was on the wire `delivered` is none: nobody can know.",
        ),
        "link-refused": Entry(
            "The primary refused the sender or receiver. The text has its condition.",
            "`amqp:not-found`: the queue does not exist, or the address has a prefix at this broker. "
            "`amqp:unauthorized-access`: the user may not use it. `amqp:resource-locked`: another client "
            "has it.",
        ),
        "filter-not-supported": Entry(
            "The primary does not apply a selector or filter of the receiver, which is closed: it would get "
            "other messages, too.",
            "Look at the name of the filter: brokers have different ones. `strict=False` goes on without it; "
            "after a failover this error says that the members differ.",
        ),
        "link-timeout": Entry(
            "No primary attached the sender or receiver in time. The link is closed, and its name is free.",
            "Without a primary see no-primary. With one: the broker hangs, or needs longer than "
            "`call_timeout`.",
        ),
        "link-closed": Entry(
            "The sender or receiver is closed, by the application or by the primary.",
            "The text has the primary's condition. Make a new one on the same connection.",
        ),
        # -- messages
        "no-credit": Entry(
            "The primary gives the sender no credit, so that nothing can be sent. It was never sent.",
            "Is the queue full, or does the broker lack memory or disk? Some brokers give no credit to a "
            "node that nobody consumes from. Look at the queue's depth and limit; the message may be sent "
            "again.",
        ),
        "blocked": Entry(
            "The primary takes no messages for now: it has closed the window of the session, as RabbitMQ "
            "does in a memory or disk alarm. Nothing of the message was sent, and the client withdrew it.",
            "Look at the broker's memory and disk (`rabbitmqctl status` names the alarms). The message may "
            "be sent again. The events `Blocked` and `Unblocked` say from when to when.",
        ),
        "send-timeout": Entry(
            "The primary did not settle the message in time.",
            "If `delivered` is none it was on the wire: repeat it with the `duplicate_id` of the error, "
            "and a broker with duplicate detection stores one message. If that happens often the broker "
            "is slow: look at its disk and its backups.",
        ),
        "receive-timeout": Entry(
            "No message arrived in time.",
            "Receive again. If the queue has messages: another consumer has them, or a selector or filter "
            "excludes them.",
        ),
        "drain-timeout": Entry(
            "The primary did not answer a drain in time. Messages may still arrive, and the receiver stays "
            "open.",
            "Some brokers answer only when their queue has messages again, or never. Close the receiver: "
            "what it has not settled goes back to the queue.",
        ),
        "confirm-not-supported": Entry(
            "The primary does not confirm what is accepted (its answer to the attach has another "
            "rcv-settle-mode than second), and the receiver, which asked for that, is closed.",
            "Use a broker that does, such as broker-stub, or create the receiver without confirm=True: an "
            "accepted message may come again then.",
        ),
        "confirm-timeout": Entry(
            "The primary did not confirm an accept in time. It may have taken effect, or the message comes "
            "again.",
            "Call accept(confirm=True) again: it waits for the same confirmation. A slow backup or a full "
            "disk holds it up.",
        ),
        "delivery-unknown": Entry(
            "The connection was lost after the message was sent and before it was settled.",
            'Only with `delivery="at-most-once"`: by default the client sends it again.',
        ),
        "not-accepted": Entry(
            "The broker settled the message with another outcome than accepted. The error has it.",
            "Rejected: the text has the condition, such as a full address or a message that is too large. "
            "Released or modified: the node cannot take it now.",
        ),
        "message-too-large": Entry(
            "The message is larger than the primary takes. The text has both sizes, and to this primary "
            "nothing was sent; or it says that the primary ended each connection over which the message was "
            "sent.",
            "Raise the broker's limit of the message size, or send less at a time. If only some members "
            "refuse it, their limits differ: set one for all.",
        ),
        "unencodable-value": Entry(
            "AMQP cannot carry a value of the message. The text has its path and its type; nothing was sent.",
            "Convert the value: a datetime needs a time zone, a Decimal becomes a str, an int has 64 bits at "
            "most. It is a mistake of the program, and a `TypeError`.",
        ),
        "undecodable-message": Entry(
            "A message arrived that is not an AMQP message, or that no Python value holds whole: it has more "
            "than 65,535 values or 300 levels, or a map whose keys are equal in Python. The text has the "
            "section and the reason. The delivery is there, and `delivery.data` has the bytes.",
            'Reject it, `delivery.reject("amqp:decode-error", "...")`, which moves it to the dead letters of '
            "its queue: left unsettled or released, the message comes again.",
        ),
        "window-full": Entry(
            "As many messages are unsettled as the option `window` allows, and `submit_nowait` does not "
            "wait.",
            "Use `submit`, which waits, or try again when a message is settled. A larger `window` takes more "
            "memory.",
        ),
        "send-many": Entry(
            "`send_many` ended before every message was accepted. `results` has the outcome or the error of "
            "each.",
            "Look at `results`, which is in the order of the messages, and send again what failed, as its "
            "own error says.",
        ),
        "stale-delivery": Entry(
            "The connection of the delivery was lost, or its receiver is closed: the primary delivers the "
            "message again.",
            "Nothing: settle the new delivery. `with delivery:` does not raise it. Make the handling of a "
            "message idempotent. Settle what is held before the receiver is closed; docs/receiving.md has "
            "the order of a shutdown.",
        ),
        "already-settled": Entry(
            "The delivery was settled before.",
            "Settle each delivery once.",
        ),
    }
)


def markdown() -> str:
    """All entries for docs/errors.md, each below a heading with its code: that is its anchor."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    for code, entry in ENTRIES.items():
        yield f"### {code}\n\n{entry.meaning}\n\n{entry.remedy}"
