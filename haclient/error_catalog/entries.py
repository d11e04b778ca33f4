"""The meaning and remedy of each error code, for ``haclient help NAME`` and docs/errors.md.

A code names an error class, a ``FailureReason`` (the end of an attempt), or a more exact cause within a
class.  Codes do not change: scripts and alarms refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """The explanation of one code.

    :param meaning: the cause; the first sentence stands alone in lists.
    :param remedy: one or two sentences in the imperative; causes belong to the meaning.
    """

    meaning: str
    remedy: str

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        return self.meaning.partition(". ")[0].removesuffix(".")


ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        # -- before a connection
        "bad-url": Entry(
            "The cluster URL, or an option, is wrong. The text names the mistake and the correct form.",
            "Correct it: `haclient explain URL` explains a URL, and docs/options.md lists the options.",
        ),
        "bad-configuration": Entry(
            "An environment variable, or a key of a file or mapping, is wrong or missing. The text names it. "
            "An unknown variable that begins with `HACLIENT_` is an error too.",
            "Correct it; docs/configuration.md lists the keys.",
        ),
        "sasl-unavailable": Entry(
            "The client has none of the SASL mechanisms in `sasl_mechanisms`; the text lists the known ones.",
            "Name a mechanism of the list, or install the extra `kerberos` for `GSSAPI`.",
        ),
        "wrong-thread": Entry(
            "A blocking call would wait for itself, or was made after a fork. `configure` and the callbacks "
            "of futures run on haclient's own thread, so they may make no blocking call. `on_event` has "
            "another thread, and may.",
            "Make the call from another thread. After a fork, make a new factory in the child.",
        ),
        # -- a search that found no primary
        "no-primary": Entry(
            "No member served as primary. The error lists the answer of each endpoint. For "
            "`ConnectionGaveUp`, the answers were final, or `max_attempts` was reached. For `SendTimeout` "
            "and `LinkTimeout`, the call ended during a failover.",
            "Check by `haclient members URL` that one of the members is primary, and that the URL has all of "
            "them. If the call ended during a failover, raise its `timeout`.",
        ),
        "deadline-exceeded": Entry(
            "No member served as primary in time. The error lists the answer of each endpoint. The limit is "
            "the `timeout` of `connect` or `startup_deadline`, after a loss `deadline`.",
            "Check by `haclient members URL` that one of the members is primary, and that the URL has all of "
            "them. If the cluster needs longer, raise the limit.",
        ),
        "not-allowed": Entry(
            "Every member refuses the connection with `amqp:not-allowed`. The text quotes a member. Usual "
            "causes: a limit of connections, a virtual host that this user may not use or that is still "
            "starting (Broker-J), or another client with the same `client_id`.",
            "Look into the broker's log for the cause. Raise the limit, name the virtual host in the option "
            "`vhost`, change the `client_id`, or connect again when the virtual host has started.",
        ),
        "unresolved": Entry(
            "A name has no address. DNS and the hosts file do not have it, or no server answered.",
            "Check the spelling, and `getent hosts NAME` on the same machine. If another DNS server has the "
            "name, give that server as the option `nameserver`.",
        ),
        "refused": Entry(
            "Nothing listens at this port.",
            "Check that the broker runs, and that the port is its port for AMQP (5672, with TLS 5671). If it "
            "runs in a container, check that the port is published.",
        ),
        "unreachable": Entry(
            "There is no route to this address, or its network is down. If your network has no IPv6, you may "
            "ignore this for an IPv6 address.",
            "Check the address, the interface and the VPN.",
        ),
        "timed-out": Entry(
            "The endpoint did not answer within `attempt_timeout`. The text has the last step that "
            "succeeded. No TCP connection: a firewall drops packets, or the host is down. TCP connected: the "
            "process hangs or is stopped, or the port has another protocol.",
            "Check the host and the firewall if there was no TCP connection, else the process and the port.",
        ),
        "ended": Entry(
            "The peer closed the socket before the session was usable. It is starting or crashing, has too "
            "many connections, or is a proxy without a member. RabbitMQ 4 closes after SASL if the user may "
            "not use the virtual host, or if a limit of connections is reached.",
            "Look into the broker's log. If it was after SASL, check the option `vhost` and the user's "
            "rights.",
        ),
        "closed": Entry(
            "The peer refused the connection by a Close. The text has its condition and description. Passive "
            "members do this, and the client tries the next member.",
            "If every member does it, look the condition up in docs/passive-members.md.",
        ),
        "redirected": Entry(
            "The member named another member, and the client connects there. A passive member that knows its "
            "primary does this.",
            "Nothing.",
        ),
        "redirect-refused": Entry(
            "The member named another member that the client may not connect to. It is insecure or foreign, "
            "or the redirects form a circle or are too many. The client never goes from TLS to plain TCP.",
            "If the target is right, set the option that the text names: `redirects` or `max_redirects`.",
        ),
        "stale-primary": Entry(
            "A member serves with an older generation than the client has seen: it was replaced. If this "
            "lasts, there may be two primaries. A new `broker-stub pair` begins at generation 1 again, so a "
            "client of the former pair refuses it at first. If only such members serve for `refusal_timeout` "
            "(60 s), the client forgets the newer generation (event `GenerationsForgotten`) and connects. "
            "The newer primary is then lost, or an impostor announced its generation (docs/security.md).",
            "If it lasts, look at both members. After a new `broker-stub pair`, start the client anew, or "
            "keep the store (`--store`).",
        ),
        "made-room": Entry(
            "The attempt had no TCP connection when `max_dials` was reached, and was ended for another one. "
            "If it happens often, members accept slowly.",
            "If it happens often, raise `max_dials`.",
        ),
        "lost-race": Entry(
            "Another attempt was usable first. While one attempt hangs, the client also dials the next "
            "member.",
            "Nothing.",
        ),
        "stopped": Entry(
            "The search ended during the attempt. The deadline passed, or the connection was closed; the "
            "error has the reason.",
            "Nothing.",
        ),
        # -- another protocol than in the URL
        "not-amqp": Entry(
            "The port does not speak AMQP 1.0. The text shows its answer.",
            "Correct the port: AMQP has 5672, with TLS 5671, unless the broker is configured otherwise.",
        ),
        "amqp-0-9-1": Entry(
            "The port speaks AMQP 0-9-1, which is another protocol than AMQP 1.0. RabbitMQ 4 speaks both at "
            "the same port. Other brokers have another port for AMQP 1.0, or none.",
            "With RabbitMQ 3, run `rabbitmq-plugins enable rabbitmq_amqp1_0`. With others, take the port for "
            "AMQP 1.0.",
        ),
        "amqp-0-10": Entry(
            "The port speaks AMQP 0-10, which is another protocol than AMQP 1.0.",
            "Load qpidd's module `amqp.so` (`--load-module`), which adds AMQP 1.0.",
        ),
        "no-sasl": Entry(
            "The port speaks AMQP 1.0 without SASL. This client always begins with SASL.",
            "Turn SASL on at the peer; ANONYMOUS is enough.",
        ),
        "http-port": Entry(
            "The port speaks HTTP: it is a web server, a management console or a proxy.",
            "Correct the port: consoles commonly have 8161 or 15672, and AMQP 5672.",
        ),
        "tls-port": Entry(
            "The port speaks TLS, and the URL begins with `amqp://`.",
            "Write `amqps://`. If the authority is your own, add the option `tls_ca`.",
        ),
        "plain-port": Entry(
            "The port does not speak TLS, and the URL begins with `amqps://`.",
            "Take the broker's TLS port, commonly 5671. Write `amqp://` if the connection need not be "
            "encrypted.",
        ),
        "no-answer": Entry(
            "The peer accepted the TCP connection and closed it before it sent anything. With `amqp://` it "
            "may be a TLS port, with `amqps://` a plain one. A proxy without a live member does this, and so "
            "does a broker that is starting. ActiveMQ does it at its limit of connections, and logs that.",
            "Check the scheme of the URL, and the process behind the port. If ActiveMQ is at its limit, "
            "raise `maximumConnections` in the URI of its transport connector, or open fewer connections.",
        ),
        "tls-failed": Entry(
            "The TLS handshake failed. The text has OpenSSL's reason. Usual causes: the broker wants a "
            "client certificate, or the two have no version of TLS in common.",
            "If the broker wants a client certificate, name it by `tls_cert` and `tls_key`. Else correct the "
            "reason in the text.",
        ),
        "tls-verification": Entry(
            "The certificate of the peer is not trusted, has expired, or has another name.",
            "Name the authority by the option `tls_ca`; if the URL has an address or an alias, name the "
            "certificate's host by `tls_server_name`. Look at the certificate by `openssl s_client -connect "
            "HOST:PORT`.",
        ),
        # -- credentials
        "authentication": Entry(
            "The peer refuses the credentials for good. In the password of a URL, write `@`, `:`, `/` and "
            "`#` as `%40`, `%3A`, `%2F` and `%23`. If `credentials` is a function, the client calls it "
            "again.",
            "Check user and password, and the broker's log. If it is Qpid Broker-J inside TLS, name the "
            "mechanism, as in `sasl_mechanisms=SCRAM-SHA-256`.",
        ),
        "authentication-temporary": Entry(
            "The peer could not check the credentials now, or the application may supply others. The client "
            "tries again.",
            "Look at the broker's user directory, or at the function that supplies the credentials.",
        ),
        "unauthorized": Entry(
            "The peer accepted the credentials, and then refused the user by a Close with "
            "`amqp:unauthorized-access`. The text quotes the peer. Artemis does this if there is no user; "
            "other brokers mean the user's rights. If `credentials` is a function, the client calls it "
            "again.",
            "If there is no user, write a user and a password. Else check the user's rights, and the virtual "
            "host (option `vhost`).",
        ),
        "no-common-mechanism": Entry(
            "No SASL mechanism is both offered by the peer and allowed to this client. The text lists both. "
            "Without a user the client may use ANONYMOUS only. PLAIN without TLS needs `sasl_plaintext`.",
            "If there is no user, write a user and a password. Else allow one of the peer's mechanisms by "
            "`sasl_mechanisms` or `sasl_plaintext`.",
        ),
        "token-refused": Entry(
            "The broker refused the token. The text has its reason, if it gave one, and the claims of a JWT "
            "that may be wrong: issuer, audience, scope, time of expiry by this machine's clock. If a clock "
            "is wrong, a broker refuses a token that has just been issued.",
            "Check issuer and audience against the broker's configuration, and the clocks of both machines. "
            "If the token has expired, give `credentials` a function that returns the current one.",
        ),
        "token-request": Entry(
            "The identity provider refuses to issue a token to this program. The text has its reason.",
            "Check the client id, its secret and the scope at the provider.",
        ),
        "unproven-server": Entry(
            "The peer let the client in without the proof that SCRAM asks for: that it knows the password. "
            "It may be an impostor. It has not learned the password, but can try guesses against the data of "
            "the SCRAM exchange.",
            "Find out which process listens there. Change a short password.",
        ),
        "channel-binding": Entry(
            "The TLS connection of the client ends at another certificate than the broker's: a proxy "
            "decrypts TLS before the broker, or a man in the middle has a trusted certificate. It has not "
            "learned the password, but can try guesses against the data of the SCRAM exchange.",
            "If the proxy is yours, name a mechanism without channel binding, as in "
            "`sasl_mechanisms=SCRAM-SHA-256`. Else find out who has a certificate for this name.",
        ),
        "scram-iterations": Entry(
            "The peer asks for fewer SCRAM iterations than 4,096 (RFC 7677), or for more than 65,536. The "
            "client does not answer. A peer that asks for few may want to guess the password.",
            "Set the count where the broker keeps its users, and set their passwords again. If the broker "
            "asks for enough, find out which process listens there.",
        ),
        # -- a connection and its links
        "connection-closed": Entry(
            "The connection was closed by the application, or gave up earlier. If a message was on the wire, "
            "`delivered` is `None`: it may have arrived.",
            "Make a new connection.",
        ),
        "link-refused": Entry(
            "The primary refused the sender or receiver. The text has its condition. `amqp:not-found`: the "
            "queue does not exist, or the broker needs a prefix in the address. `amqp:unauthorized-access`: "
            "the user may not use it. `amqp:resource-locked`: another client has it.",
            "Create the queue or correct the address, give the user the right, or close the other client.",
        ),
        "filter-not-supported": Entry(
            "The primary does not apply a selector or filter of the receiver. The receiver is closed, "
            "because it would also get other messages. Brokers have different names for filters. After a "
            "failover the new primary may lack a filter that the former one had.",
            "Correct the name of the filter, or go on without it by `strict=False`.",
        ),
        "link-timeout": Entry(
            "No primary attached the sender or receiver in time. The link is closed, and its name is free. "
            "There is no primary, or the broker hangs or needs longer than `call_timeout`.",
            "Check by `haclient members URL` that there is a primary. If there is, look at the broker, or "
            "raise `call_timeout`.",
        ),
        "link-closed": Entry(
            "The sender or receiver is closed, by the application or by the primary. The text has the "
            "primary's condition.",
            "Make a new one on the same connection.",
        ),
        # -- messages
        "no-credit": Entry(
            "The primary gives the sender no credit, so nothing can be sent. The message was not sent, and "
            "may be sent again. The queue is full, or the broker lacks memory or disk. Some brokers give no "
            "credit while a node has no consumer.",
            "Look at the queue's depth and limit, and at the broker's memory and disk. Then send the message "
            "again.",
        ),
        "blocked": Entry(
            "The primary accepts no messages for now: it closed the session window, as RabbitMQ does in a "
            "memory or disk alarm. The message was not sent, and the client withdrew it. The events "
            "`Blocked` and `Unblocked` report the beginning and the end.",
            "Look at the broker's memory and disk (`rabbitmqctl status` names the alarms). Then send the "
            "message again.",
        ),
        "send-timeout": Entry(
            "The primary did not settle the message in time. If `delivered` is `None`, it was on the wire "
            "and may have arrived. If both sends have one `duplicate_id`, a broker with duplicate detection "
            "stores one message.",
            "Send the message again, with the `duplicate_id` of the error. If it happens often, look at the "
            "broker's disk and its backups.",
        ),
        "receive-timeout": Entry(
            "No message arrived in time. If the queue has messages, another consumer has them, or a selector "
            "or filter excludes them.",
            "Receive again.",
        ),
        "drain-timeout": Entry(
            "The primary did not answer a drain in time. Messages may still arrive, and the receiver stays "
            "open. Some brokers answer only when their queue has messages again, or never.",
            "Drain again, or close the receiver, which gives unsettled messages back to the queue.",
        ),
        "confirm-not-supported": Entry(
            "The primary does not confirm accepts, and the receiver is closed. The primary's Attach has "
            "another rcv-settle-mode than second. Without confirmation an accepted message may be delivered "
            "again.",
            "Use a broker that confirms, such as broker-stub, or create the receiver without `confirm=True`.",
        ),
        "confirm-timeout": Entry(
            "The primary did not confirm an accept in time. The accept may have taken effect, or the message "
            "is delivered again. A slow backup or a full disk causes this.",
            "Call `accept(confirm=True)` again: it waits for the same confirmation.",
        ),
        "delivery-unknown": Entry(
            "The connection was lost after the message was sent and before it was settled. This happens only "
            'with `delivery="at-most-once"`: by default the client sends the message again.',
            "Send the message again only if a second copy does no harm.",
        ),
        "not-accepted": Entry(
            "The broker settled the message with another outcome than accepted (`error.outcome`). Rejected: "
            "the text has the condition, such as a full address or a message that is too large. Released or "
            "modified: the node cannot take the message now.",
            "If it was rejected, correct the cause that the condition names. Else send it again later.",
        ),
        "message-too-large": Entry(
            "The message is larger than the primary takes. If the text has both sizes, this primary got "
            "nothing. Else it ended each connection over which the message was sent.",
            "Raise the broker's limit of the message size, or send less at a time. If only some members "
            "refuse it, set one limit for all.",
        ),
        "unencodable-value": Entry(
            "AMQP cannot carry a value of the message. The text has its path and its type. Nothing was sent. "
            "This is a mistake of the program, and a `TypeError`.",
            "Convert the value: a datetime needs a time zone, a Decimal becomes a str, an int has 64 bits at "
            "most.",
        ),
        "undecodable-message": Entry(
            "A message arrived that is not an AMQP message, or that Python cannot hold whole. It has more "
            "than 65,535 values or 300 levels, or a map with keys that are equal in Python. The text has the "
            "section and the reason. `delivery.data` has the bytes. If it is not settled, or is released, "
            "the message is delivered again.",
            'Reject it, `delivery.reject("amqp:decode-error", "...")`, which moves it to the dead letters of '
            "its queue.",
        ),
        "window-full": Entry(
            "As many messages are unsettled as the option `window` allows, and `submit_nowait` does not "
            "wait. A larger `window` takes more memory.",
            "Use `submit`, which waits, or try again when a message is settled.",
        ),
        "send-many": Entry(
            "`send_many` ended before every message was accepted. `results` has the outcome or the error of "
            "each, in the order of the messages.",
            "Look at `results`, and send the failed messages again as each error allows.",
        ),
        "stale-delivery": Entry(
            "The connection of the delivery was lost, or its receiver is closed. The primary delivers the "
            "message again. `with delivery:` does not raise this.",
            "Settle the new delivery, and make the handling of a message idempotent. Settle held deliveries "
            "before you close a receiver; docs/receiving.md has the order of a shutdown.",
        ),
        "already-settled": Entry(
            "The delivery was settled before.",
            "Settle each delivery once.",
        ),
    }
)
