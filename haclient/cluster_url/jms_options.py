"""Translation of the options of a ``failover:(...)`` URI.

Qpid JMS and ActiveMQ have such URIs.  The options of the list follow the parenthesis; Qpid JMS prefixes them
with ``failover.``, which is optional here.  The options of the members (``amqp.``, ``transport.``, ``jms.``)
are inside it, or outside with the prefix ``failover.nested.`` or ``nested.``.

Sources: "QpidJMS configuration"; "ActiveMQ Classic failover transport reference", and the setters of its
``FailoverTransport``; QPIDJMS-336 (an attempt is a pass over the list).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from haclient.cluster_url.foreign_options import (
    Counterpart,
    Written,
    equal,
    milliseconds,
    only,
    passes,
    refused,
    switch,
    translate,
    words,
)
from haclient.cluster_url.options import OPTION_NAMES, Options, refuse_unknown

PREFIX = "failover."
_NESTED = ("failover.nested.", "nested.")
_FIRST_DELAY = "the first attempt after a loss waits a random time below it; it cannot be 0"
_BACKOFF = {"backoff_factor": "1"}
_STARTUP = "the first connect is limited by time here: use startup_deadline"
_ORDER = "members are tried in the order written, and jitter keeps clients apart"
_LOGGED = "every failed attempt is an event, and logged"
_STAYS = "a client stays with the primary"


def _startup() -> Counterpart:
    def read(text: str, _: int) -> Mapping[str, str]:
        if text != "-1":
            raise ValueError(_STARTUP)
        return {"startup_deadline": "none"}

    remark = f"`-1` is `none`; a number is refused: {_STARTUP}"
    return Counterpart(default="-1", read=read, ours=("startup_deadline",), remark=remark)


QPID_JMS_LIST: Mapping[str, Counterpart] = MappingProxyType(
    {
        "initialReconnectDelay": milliseconds("backoff_base", "0", _FIRST_DELAY),
        "reconnectDelay": milliseconds("backoff_base", "10", "either this or `initialReconnectDelay`"),
        "maxReconnectDelay": milliseconds("backoff_max", "30000"),
        "useReconnectBackOff": switch("true", off=_BACKOFF),
        "reconnectBackOffMultiplier": equal("backoff_factor", "2.0"),
        "maxReconnectAttempts": passes("-1"),
        "startupMaxReconnectAttempts": _startup(),
        "warnAfterReconnectAttempts": refused(_LOGGED, "10"),
        "randomize": switch("false", on=_ORDER),
        "amqpOpenServerListAction": words(
            "pushed_members", "REPLACE", {"REPLACE": "replace", "ADD": "add", "IGNORE": "ignore"}
        ),
    }
)

ACTIVEMQ_LIST: Mapping[str, Counterpart] = MappingProxyType(
    {
        "initialReconnectDelay": milliseconds("backoff_base", "10", _FIRST_DELAY),
        "maxReconnectDelay": milliseconds("backoff_max", "30000"),
        "useExponentialBackOff": switch("true", off=_BACKOFF),
        "reconnectDelayExponent": equal("backoff_factor", "2.0"),
        "maxReconnectAttempts": passes("-1"),
        "startupMaxReconnectAttempts": _startup(),
        "warnAfterReconnectAttempts": refused(_LOGGED, "10"),
        "randomize": switch("true", on=_ORDER),
        "timeout": milliseconds("send_timeout", "-1", "-1 is `none`", endless=True),
        "backup": switch("false", on={"standby": "warm"}),
        "backupPoolSize": only("1", "1", "one connection is kept beside the live one"),
        "priorityBackup": switch("false", on=_STAYS),
        "priorityURIs": refused(_STAYS),
        "updateURIsSupported": switch("true", on={"pushed_members": "add"}, off={"pushed_members": "ignore"}),
        "updateURIsURL": refused("no list of members is read from a file: write a name that DNS resolves"),
        "rebalanceUpdateURIs": switch("true", on=_STAYS),
        "reconnectSupported": switch("true", off="a client always follows a primary that redirects it"),
        "trackMessages": switch(
            "false",
            on={"delivery": "at-least-once"},
            off="unsettled messages are sent again after a loss; delivery=at-most-once fails them",
        ),
        "trackTransactionProducers": refused("transactions do not survive a failover", "true"),
        "maxCacheSize": refused("the option window limits unsettled messages, by their number", "131072"),
    }
)

_URI = "write it before the hosts, as in amqp://user:password@host"
_JMS = "a matter of the JMS interface"
_CREDIT = "there is one credit for all receivers: use jms.prefetchPolicy.all"
_SETTLED = "messages are always settled by the receiving side"
_SOCKET = "sockets are not configured"
_STORES = "certificates are PEM files: use tls_ca, tls_cert and tls_key"
_CONTEXT = "pass an ssl_context to the factory"
_KERBEROS = "Kerberos is configured in krb5.conf, and the service is amqp"


def _every(names: str, why: str, prefix: str = "") -> dict[str, Counterpart]:
    return {f"{prefix}{name}": refused(why) for name in names.split()}


QPID_JMS_MEMBER: Mapping[str, Counterpart] = MappingProxyType(
    {
        "amqp.idleTimeout": milliseconds("heartbeat", "60000"),
        "amqp.vhost": equal("vhost", ""),
        "amqp.saslMechanisms": equal("sasl_mechanisms", ""),
        "amqp.maxFrameSize": equal("max_frame_size", "1048576"),
        "amqp.saslLayer": switch("true", off="the client always uses SASL"),
        "amqp.allowNonSecureRedirects": switch("false", on="a redirect never leads from TLS to none"),
        "amqp.drainTimeout": refused(
            "receive() does not drain; drain() has a timeout of its own, or call_timeout", "60000"
        ),
        "amqp.traceFrames": switch("false", on="set PN_TRACE_FRM=1 in the environment"),
        "jms.username": refused(_URI),
        "jms.password": refused(_URI),
        "jms.clientID": equal("client_id", ""),
        "jms.connectTimeout": milliseconds("startup_deadline", "15000", endless=True),
        "jms.sendTimeout": milliseconds("send_timeout", "-1", "-1 is `none`", endless=True),
        "jms.closeTimeout": milliseconds("close_timeout", "60000"),
        "jms.requestTimeout": milliseconds("call_timeout", "-1", "-1 is `none`", endless=True),
        "jms.prefetchPolicy.all": equal("credit", "1000"),
        **_every(
            "queuePrefetch topicPrefetch queueBrowserPrefetch durableTopicPrefetch",
            _CREDIT,
            "jms.prefetchPolicy.",
        ),
        **_every("maxRedeliveries outcome", "the broker counts deliveries", "jms.redeliveryPolicy."),
        **_every("messageIDType", "the application chooses message.id", "jms.messageIDPolicy."),
        **_every(
            "presettleAll presettleProducers presettleTopicProducers presettleQueueProducers "
            "presettleTransactedProducers presettleConsumers presettleTopicConsumers presettleQueueConsumers",
            _SETTLED,
            "jms.presettlePolicy.",
        ),
        **_every(
            "whiteList blackList allowList denyList",
            "objects are not deserialised",
            "jms.deserializationPolicy.",
        ),
        **_every(
            "forceAsyncSend forceSyncSend forceAsyncAcks localMessageExpiry localMessagePriority "
            "validatePropertyNames receiveLocalOnly receiveNoWaitLocalOnly queuePrefix topicPrefix "
            "clientIDPrefix connectionIDPrefix populateJMSXUserID awaitClientID useDaemonThread tracing",
            _JMS,
            "jms.",
        ),
        "transport.connectTimeout": refused(
            "an attempt has one deadline, from TCP connect to usable session: use attempt_timeout", "60000"
        ),
        "transport.tcpNoDelay": switch("true", off="small frames are never held back"),
        "transport.tcpKeepAlive": switch("false", on="heartbeats of AMQP find a dead peer: use heartbeat"),
        **_every(
            "sendBufferSize receiveBufferSize trafficClass soTimeout soLinger useEpoll useKQueue "
            "localAddress localPort defaultTcpPort sharedEventLoopThreads traceBytes useWebSockets",
            _SOCKET,
            "transport.",
        ),
        "transport.trustAll": switch(
            "false", on="write tls_verify=false, which trusts any certificate, and any name in it"
        ),
        "transport.verifyHost": switch(
            "true", off="the name is checked with the certificate; tls_verify=false checks neither"
        ),
        **_every(
            "keyStoreLocation keyStorePassword trustStoreLocation trustStorePassword keyStoreType "
            "trustStoreType storeType keyAlias",
            _STORES,
            "transport.",
        ),
        **_every(
            "contextProtocol enabledCipherSuites disabledCipherSuites enabledProtocols disabledProtocols "
            "useOpenSSL",
            _CONTEXT,
            "transport.",
        ),
        **_every("configScope protocol serverName", _KERBEROS, "sasl.options."),
    }
)

_LIST: Mapping[str, Counterpart] = {**ACTIVEMQ_LIST, **QPID_JMS_LIST}


def parse_failover_options(pairs: Iterable[tuple[str, str]], members: int = 1) -> tuple[Options, Written]:
    """Return the options for the names and decoded texts of a failover URI.

    :param members: number of members in the list.
    :raises ClusterURLError: names the option at fault as it was written.
    """
    return translate(pairs, _counterpart, members)


def _counterpart(spelt: str) -> Counterpart | str:
    name = spelt
    for prefix in (*_NESTED, PREFIX):
        name = name.removeprefix(prefix)
    if name in OPTION_NAMES:
        return name
    found = _LIST.get(name) or QPID_JMS_MEMBER.get(name)
    if found is None:
        raise refuse_unknown(name, spelt)
    return found
