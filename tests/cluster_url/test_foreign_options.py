"""Options of other clients: each is mapped, or refused by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.foreign_options import Counterpart
from haclient.cluster_url.jms_options import ACTIVEMQ_LIST, QPID_JMS_LIST, QPID_JMS_MEMBER
from haclient.cluster_url.options import OPTION_NAMES, Options
from haclient.cluster_url.qpid_options import QPID_CPP, RECONNECT_URLS
from haclient.cluster_url.seed import Secret, Seed
from haclient.cluster_url.url import ClusterURL
from scripts.generate.tables import counterparts_table

PAGE = Path(__file__).parents[2] / "docs" / "urls.md"
SECRET = "hunter2"

# The published lists, copied independently of the code.
QPID_JMS = """
    failover.initialReconnectDelay failover.reconnectDelay failover.maxReconnectDelay
    failover.useReconnectBackOff failover.reconnectBackOffMultiplier failover.maxReconnectAttempts
    failover.startupMaxReconnectAttempts failover.warnAfterReconnectAttempts failover.randomize
    failover.amqpOpenServerListAction
    amqp.idleTimeout amqp.vhost amqp.saslLayer amqp.saslMechanisms amqp.maxFrameSize amqp.drainTimeout
    amqp.allowNonSecureRedirects amqp.traceFrames
    transport.sendBufferSize transport.receiveBufferSize transport.trafficClass transport.connectTimeout
    transport.soTimeout transport.soLinger transport.tcpKeepAlive transport.tcpNoDelay transport.useEpoll
    transport.useKQueue transport.keyStoreLocation transport.keyStorePassword transport.trustStoreLocation
    transport.trustStorePassword transport.keyStoreType transport.trustStoreType transport.storeType
    transport.contextProtocol transport.enabledCipherSuites transport.disabledCipherSuites
    transport.enabledProtocols transport.disabledProtocols transport.trustAll transport.verifyHost
    transport.keyAlias
    jms.username jms.password jms.clientID jms.forceAsyncSend jms.forceSyncSend jms.forceAsyncAcks
    jms.localMessageExpiry jms.localMessagePriority jms.validatePropertyNames jms.receiveLocalOnly
    jms.receiveNoWaitLocalOnly jms.queuePrefix jms.topicPrefix jms.closeTimeout jms.connectTimeout
    jms.sendTimeout jms.requestTimeout jms.clientIDPrefix jms.connectionIDPrefix jms.populateJMSXUserID
    jms.awaitClientID jms.useDaemonThread
    jms.prefetchPolicy.queuePrefetch jms.prefetchPolicy.topicPrefetch jms.prefetchPolicy.queueBrowserPrefetch
    jms.prefetchPolicy.durableTopicPrefetch jms.prefetchPolicy.all
    jms.redeliveryPolicy.maxRedeliveries jms.redeliveryPolicy.outcome jms.messageIDPolicy.messageIDType
    jms.presettlePolicy.presettleAll jms.presettlePolicy.presettleProducers
    jms.presettlePolicy.presettleTopicProducers jms.presettlePolicy.presettleQueueProducers
    jms.presettlePolicy.presettleTransactedProducers jms.presettlePolicy.presettleConsumers
    jms.presettlePolicy.presettleTopicConsumers jms.presettlePolicy.presettleQueueConsumers
    jms.deserializationPolicy.whiteList jms.deserializationPolicy.blackList
    sasl.options.configScope sasl.options.protocol sasl.options.serverName
"""
ACTIVEMQ = """
    backup initialReconnectDelay maxCacheSize maxReconnectAttempts maxReconnectDelay randomize
    reconnectDelayExponent reconnectSupported startupMaxReconnectAttempts timeout trackMessages
    updateURIsSupported updateURIsURL useExponentialBackOff warnAfterReconnectAttempts priorityBackup
    priorityURIs backupPoolSize trackTransactionProducers rebalanceUpdateURIs
"""
CPP = """
    reconnect reconnect-timeout reconnect-limit reconnect-interval reconnect-interval-min
    reconnect-interval-max reconnect-urls-replace username password sasl-mechanism sasl-mechanisms
    sasl-service sasl-min-ssf sasl-max-ssf heartbeat tcp-nodelay locale max-channels max-frame-size bounds
    transport ssl-cert-name ssl-ignore-hostname-verification-failure x-reconnect-on-limit-exceeded
    container-id nest-annotations set-to-on-send address-passthrough max-delivery-attempts raise-rejected
    redelivery-timeout properties client-properties protocol
"""

MEANINGS = [
    ("failover:(amqp://a)?failover.useReconnectBackOff=false", Options(backoff_factor=1.0)),
    ("failover:(amqp://a)?failover.useReconnectBackOff=TRUE", Options()),
    ("failover:(amqp://a)?failover.randomize=false", Options()),
    ("failover:(amqp://a)?failover.amqpOpenServerListAction=REPLACE", Options(pushed_members="replace")),
    ("failover:(amqp://a)?failover.amqpOpenServerListAction=ignore", Options(pushed_members="ignore")),
    ("failover:(amqp://a)?failover.startupMaxReconnectAttempts=-1", Options(startup_deadline=None)),
    # An attempt is a pass over the list in that client, but a try at one member in haclient.
    ("failover:(amqp://a,amqp://b,amqp://c)?maxReconnectAttempts=4", Options(max_attempts=12)),
    ("failover:(amqp://a)?failover.nested.amqp.vhost=v", Options(vhost="v")),
    ("failover:(amqp://a)?nested.amqp.idleTimeout=2500", Options(heartbeat=2.5)),
    (
        "failover:(amqp://a?amqp.saslMechanisms=PLAIN,EXTERNAL)",
        Options(sasl_mechanisms=("PLAIN", "EXTERNAL")),
    ),
    (
        "failover:(amqp://a)?jms.clientID=c&jms.sendTimeout=-1&jms.prefetchPolicy.all=7",
        Options(client_id="c", credit=7),
    ),
    (
        "failover:(amqp://a)?jms.connectTimeout=15000&jms.closeTimeout=250",
        Options(startup_deadline=15.0, close_timeout=0.25),
    ),
    ("failover:(amqp://a)?timeout=3000&backup=true", Options(send_timeout=3.0, standby="warm")),
    ("failover:(amqp://a)?backup=false&priorityBackup=false&backupPoolSize=1", Options()),
    ("failover:(amqp://a)?useExponentialBackOff=true&reconnectDelayExponent=3", Options(backoff_factor=3.0)),
    ("failover:(amqp://a)?updateURIsSupported=false", Options(pushed_members="ignore")),
    ("failover:(amqp://a)?trackMessages=true", Options(delivery="at-least-once")),
    ("amqp:tcp:a?reconnect=true", Options()),
    ("amqp:tcp:a?reconnect_timeout=30", Options(deadline=30.0, startup_deadline=30.0)),
    ("amqp:tcp:a,b?reconnect-limit=3", Options(max_attempts=6)),
    ("amqp:tcp:a?reconnect_limit=-1", Options()),
    (
        "amqp:tcp:a?reconnect_interval_min=0.5&reconnect-interval-max=8",
        Options(backoff_base=0.5, backoff_max=8.0),
    ),
    ("amqp:tcp:a?reconnect_interval=3", Options(backoff_base=3.0, backoff_max=3.0)),
    ("amqp:tcp:a?sasl_mechanisms=PLAIN%20EXTERNAL", Options(sasl_mechanisms=("PLAIN", "EXTERNAL"))),
    ("amqp:tcp:a?container-id=c&max-frame-size=4096", Options(client_id="c", max_frame_size=4096)),
]

REFUSALS = [
    ("failover:(amqp://a)?failover.randomize=true", "failover.randomize", "jitter"),
    (
        "failover:(amqp://a)?failover.maxReconnectAttempts=0",
        "failover.maxReconnectAttempts",
        "always reconnects",
    ),
    ("failover:(amqp://a)?failover.maxReconnectAttempts=many", "failover.maxReconnectAttempts", "attempts"),
    (
        "failover:(amqp://a)?failover.initialReconnectDelay=0",
        "failover.initialReconnectDelay",
        "out of range",
    ),
    (
        "failover:(amqp://a)?failover.amqpOpenServerListAction=MERGE",
        "failover.amqpOpenServerListAction",
        "REPLACE, ADD",
    ),
    ("failover:(amqp://a)?backup=maybe", "backup", "neither true nor false"),
    ("failover:(amqp://a)?backup=true&standby=none", "standby", "already set by 'backup'"),
    ("failover:(amqp://a)?backupPoolSize=2", "backupPoolSize", "only '1'"),
    ("failover:(amqp://a)?priorityBackup=true", "priorityBackup", "primary"),
    ("failover:(amqp://a)?nested.transport.trustAll=true", "nested.transport.trustAll", "tls_verify"),
    ("failover:(amqp://a?transport.connectTimeout=5)", "transport.connectTimeout", "attempt_timeout"),
    ("failover:(amqp://a)?initialReconnectDelay=5&reconnectDelay=5", "reconnectDelay", "already set by"),
    ("failover:(amqp://a)?jms.nothing=1", "jms.nothing", "unknown option"),
    ("amqp:tcp:a?reconnect=false", "reconnect", "always reconnects"),
    ("amqp:tcp:a?reconnect_limit=0", "reconnect_limit", "always reconnects"),
    ("amqp:tcp:a?reconnect_urls_replace=true", "reconnect_urls_replace", "always tried"),
    ("amqp:tcp:a?sasl_service=qpidd", "sasl_service", "only 'amqp'"),
    ("amqp:tcp:a?reconnect-timeout=x", "reconnect-timeout", "not a time"),
    ("amqp:tcp:a?reconect=true", "reconect", "unknown option"),
]


@pytest.mark.parametrize(("text", "options"), MEANINGS)
def test_an_option_of_theirs_is_one_of_ours(text: str, options: Options) -> None:
    assert ClusterURL.parse(text).options == options


@pytest.mark.parametrize(("text", "option", "part"), REFUSALS)
def test_what_has_no_counterpart_is_refused_by_name(text: str, option: str, part: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(text)
    assert caught.value.option == option
    assert option in str(caught.value)
    assert part in str(caught.value)


PUBLISHED = [
    *((f"failover:(amqp://a)?{name}=", name) for name in (*QPID_JMS.split(), *ACTIVEMQ.split())),
    *((f"amqp:tcp:a?{name}=", name) for name in CPP.split()),
]
# Every option with values accepts at least one of these.
VALUES = ["true", "false", "-1", "1", "2.5", "5000", "amqp", "amqp1.0", "ADD"]


@pytest.mark.parametrize(("text", "option"), PUBLISHED)
def test_no_published_option_is_unknown(text: str, option: str) -> None:
    complaint = complaint_about(f"{text}~")
    assert complaint is None or (complaint.option == option and "unknown" not in str(complaint))


TABLES = [
    *((f"failover:(amqp://a)?{name}=", each) for name, each in QPID_JMS_LIST.items()),
    *((f"failover:(amqp://a)?{name}=", each) for name, each in ACTIVEMQ_LIST.items()),
    *((f"failover:(amqp://a)?{name}=", each) for name, each in QPID_JMS_MEMBER.items()),
    *((f"amqp:tcp:a?{name}=", each) for name, each in QPID_CPP.items() if name != RECONNECT_URLS),
]


@pytest.mark.parametrize(("text", "counterpart"), TABLES, ids=[text for text, _ in TABLES])
def test_the_table_says_what_is_refused_whatever_its_value(text: str, counterpart: Counterpart) -> None:
    assert is_taken(text) != counterpart.remark.startswith("refused: ")


def is_taken(text: str) -> bool:
    return any(complaint_about(f"{text}{value}") is None for value in VALUES)


def complaint_about(text: str) -> ClusterURLError | None:
    try:
        ClusterURL.parse(text)
    except ClusterURLError as error:
        return error
    return None


@pytest.mark.parametrize(
    "option", ["jms.password", "transport.keyStorePassword", "transport.trustStorePassword"]
)
def test_a_password_in_a_refused_option_is_not_quoted(option: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(f"failover:(amqp://a)?{option}={SECRET}")
    assert SECRET not in repr(caught.value)


def test_a_password_in_a_refused_option_of_qpid_is_not_quoted() -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(f"amqp:tcp:a?password={SECRET}")
    assert SECRET not in repr(caught.value)


def test_reconnect_urls_are_more_members_with_the_same_credentials() -> None:
    url = ClusterURL.parse("amqp:u/p@tcp:a:5672?reconnect_urls=amqp:tcp:b:5673,ssl:c&reconnect-urls=a")
    expected = [Endpoint("a", 5672), Endpoint("b", 5673), Endpoint("c", 5671, tls=True)]
    assert list(url.seeds) == [Seed(each, "u", Secret("p")) for each in expected]


def test_a_url_remembers_how_each_option_was_spelt() -> None:
    url = ClusterURL.parse(
        "failover:(amqp://a?heartbeat=5)?failover.maxReconnectDelay=50&nested.amqp.vhost=v"
    )
    assert dict(url.written) == {
        "backoff_max": "failover.maxReconnectDelay",
        "vhost": "nested.amqp.vhost",
        "heartbeat": "heartbeat",
    }
    assert ClusterURL.parse("amqp:tcp:a?reconnect-timeout=5").written == (
        ("deadline", "reconnect-timeout"),
        ("startup_deadline", "reconnect-timeout"),
    )
    assert ClusterURL.parse("amqp://a?credit=100").written == (("credit", "credit"),)


@pytest.mark.parametrize(
    ("name", "counterparts"),
    [
        ("qpid-jms", QPID_JMS_LIST),
        ("activemq", ACTIVEMQ_LIST),
        ("qpid-cpp", QPID_CPP),
        ("qpid-jms-members", QPID_JMS_MEMBER),
    ],
)
def test_the_page_has_the_tables_of_the_code(name: str, counterparts: Mapping[str, Counterpart]) -> None:
    """The tables are generated by ``python -m scripts.generate``."""
    text = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert text is not None
    assert text[1] == counterparts_table(counterparts)


def test_an_option_of_ours_is_ours_in_every_form() -> None:
    for name in set(OPTION_NAMES) & {*QPID_CPP}:
        assert QPID_CPP[name].ours == (name,)
