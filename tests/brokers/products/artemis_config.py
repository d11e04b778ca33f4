"""The files of an Artemis instance, in the layout of ``artemis create``, with only the settings in use.

Each function returns a part of ``broker.xml``. It differs from the defaults in these points:

* Addresses made by clients are ANYCAST. The default for a bare AMQP client is MULTICAST.
* ``check-period`` and ``connection-ttl`` of the cluster connection are short, so that members drop a
  silent host after seconds instead of a minute.
* The members find each other by static connectors, as loopback has no multicast.
* Replication keeps few old journals. Otherwise the twentieth failover would find a full disk.

Source: the schema ``artemis-configuration.xsd`` of the distribution, and its user manual, chapters "High
Availability and Failover", "Network Isolation" and "Broker Connections".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from haclient.cluster_url.endpoint import Endpoint

USER, PASSWORD = "admin", "secret of admin"
_CLUSTER_USER, _CLUSTER_PASSWORD = "cluster", "secret of cluster"
_REALM_SCOPE = "amqp-sasl-gssapi"
_LOCK_MANAGER = "org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager"
# Milliseconds. On two busy cores a JVM was once silent for over 4 s, and lost its replica.
_CHECK_PERIOD, CONNECTION_TTL = 500, 12_000


class Kind(enum.Enum):
    """The number of members, and how two agree on the active one."""

    LOCKED = "locked"
    """Replication; the holder of a file lock is active."""
    SHARED = "shared"
    """One shared journal; the holder of its lock is active."""
    QUORUM = "quorum"
    """Replication; a backup that loses its primary asks the other members. A single pair has none."""
    SINGLE = "single"
    """One broker."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The policy for messages to full addresses.

    :ivar match: a pattern for the addresses, for example ``block.#``.
    :ivar policy: PAGE, BLOCK, DROP or FAIL.
    :ivar max_bytes: the size at which an address is full.
    """

    match: str
    policy: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Kerberos:
    """A realm whose users may log in by GSSAPI, beside PLAIN.

    :ivar config: the file krb5.conf.
    :ivar keytab: the keys of the members, as ``amqp/HOST``.
    """

    config: Path
    keytab: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """A test's deviations from the usual configuration.

    :ivar anycast: make addresses that clients create ANYCAST; ``False`` leaves Artemis' default,
        MULTICAST.
    :ivar unmade: an address that is not created on demand, unlike all others.
    :ivar guests: admit clients without a known user name.
    :ivar limits: limits of some addresses, or of all (``#``).
    :ivar id_cache: the number of ids that an address's duplicate detection remembers.
    :ivar advertised: the ``host:port`` that each member announces to the others and to clients, in their
        order; an empty one means its listening address.
    :ivar redirects_to: a connection router redirects every client to the first of these that is up.
    :ivar heap: Java's heap in MiB. 512 suffice for some ten thousand messages, but not for as many queues.
    :ivar kerberos: admit the users of this realm; each has all permissions.
    :ivar mirror_to: the broker that must have a client's message before it is accepted.
    """

    anycast: bool = True
    unmade: str = ""
    guests: bool = False
    limits: tuple[Limit, ...] = ()
    id_cache: int = 20_000
    advertised: tuple[str, ...] = ()
    redirects_to: tuple[str, ...] = ()
    mirror_to: str = ""
    kerberos: Kerberos | None = None
    heap: int = 512


@dataclass(frozen=True, slots=True)
class Instance:
    """One member's part of the configuration.

    :ivar number: 0 for the member that starts as primary.
    :ivar store: the folder of its journal; the same for both members with a shared store.
    :ivar listen: the address of its acceptor.
    :ivar connectors: ``host:port`` of all members, as they reach each other.
    """

    kind: Kind
    number: int
    folder: Path
    store: Path
    locks: Path
    listen: Endpoint
    connectors: tuple[str, ...]
    failback: bool
    settings: Settings = Settings()


def write(instance: Instance) -> None:
    """Create the folder of the instance."""
    for name in ("etc", "data", "tmp"):
        (instance.folder / name).mkdir(parents=True, exist_ok=True)
    instance.store.mkdir(parents=True, exist_ok=True)
    instance.locks.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("broker.xml", broker(instance)),
        ("bootstrap.xml", _bootstrap(instance.folder)),
        ("management.xml", '<management-context xmlns="http://activemq.apache.org/schema"/>\n'),
        ("login.config", _login(instance.settings)),
        ("artemis-users.properties", f"{USER} = {PASSWORD}\n"),
        ("artemis-roles.properties", f"amq = {USER}\n"),
        ("log4j2.properties", _LOG),
    ):
        (instance.folder / "etc" / name).write_text(text)


def broker(instance: Instance) -> str:
    """Return the whole ``broker.xml``."""
    store = escape(str(instance.store))
    clustered = instance.kind is not Kind.SINGLE
    return f"""\
<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>member-{instance.number}</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <paging-directory>{store}/paging</paging-directory>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <journal-datasync>true</journal-datasync>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>4</journal-pool-files>
    <max-disk-usage>98</max-disk-usage>
    <id-cache-size>{instance.settings.id_cache}</id-cache-size>
    <cluster-user>{_CLUSTER_USER}</cluster-user>
    <cluster-password>{_CLUSTER_PASSWORD}</cluster-password>
{_ha_policy(instance) if clustered else ""}{_connectors(instance)}{_acceptors(instance)}
{_cluster(instance) if clustered else ""}{_router(instance)}{_mirror(instance)}{_SECURITY}
{_address_settings(instance.settings)}
  </core>
</configuration>
"""


def _ha_policy(instance: Instance) -> str:
    primary = instance.number == 0
    failback = str(instance.failback).lower()
    if instance.kind is Kind.SHARED:
        backup = "" if primary else f"<allow-failback>{failback}</allow-failback>"
        terms = f"<failover-on-shutdown>true</failover-on-shutdown>{backup}"
        return _policy("shared-store", "primary" if primary else "backup", terms)
    if instance.kind is Kind.LOCKED:
        locks = quoteattr(str(instance.locks))
        terms = (
            f"<manager><class-name>{_LOCK_MANAGER}</class-name>"
            f'<properties><property key="locks-folder" value={locks}/></properties></manager>'
        )
    else:
        terms = "<vote-retries>2</vote-retries><vote-retry-wait>500</vote-retry-wait>"
        terms += "<check-for-active-server>true</check-for-active-server>" if primary else ""
    if not primary:
        saved = "<max-saved-replicated-journals-size>2</max-saved-replicated-journals-size>"
        terms = f"{terms}{saved}<allow-failback>{failback}</allow-failback>"
    return _policy("replication", "primary" if primary else "backup", terms)


def _policy(way: str, role: str, terms: str) -> str:
    return f"    <ha-policy><{way}><{role}>{terms}</{role}></{way}></ha-policy>\n"


def _connectors(instance: Instance) -> str:
    named = {f"member-{number}": address for number, address in enumerate(instance.connectors)}
    named |= {f"target-{number}": address for number, address in enumerate(instance.settings.redirects_to)}
    if advertised := _advertised(instance):
        named["advertised"] = advertised
    made = (f'<connector name="{name}">tcp://{address}</connector>' for name, address in named.items())
    return f"    <connectors>{''.join(made)}</connectors>\n"


def _advertised(instance: Instance) -> str:
    advertised = instance.settings.advertised
    return advertised[instance.number] if advertised else ""


def _acceptors(instance: Instance) -> str:
    router = ";router=redirect" if instance.settings.redirects_to else ""
    options = f"protocols=CORE,AMQP;amqpDuplicateDetection=true;amqpMinLargeMessageSize=102400{router}"
    if instance.settings.kerberos is not None:
        options += f";saslMechanisms=GSSAPI,PLAIN;saslLoginConfigScope={_REALM_SCOPE}"
    acceptor = f'<acceptor name="amqp">tcp://{instance.listen.authority}?{options}</acceptor>'
    return f"    <acceptors>{acceptor}</acceptors>\n"


def _cluster(instance: Instance) -> str:
    own = "advertised" if _advertised(instance) else f"member-{instance.number}"
    others = "".join(
        f"<connector-ref>member-{number}</connector-ref>"
        for number in range(len(instance.connectors))
        if number != instance.number
    )
    return f"""\
    <cluster-connections>
      <cluster-connection name="members">
        <connector-ref>{own}</connector-ref>
        <check-period>{_CHECK_PERIOD}</check-period>
        <connection-ttl>{CONNECTION_TTL}</connection-ttl>
        <retry-interval>200</retry-interval>
        <max-retry-interval>1000</max-retry-interval>
        <message-load-balancing>OFF</message-load-balancing>
        <static-connectors>{others}</static-connectors>
      </cluster-connection>
    </cluster-connections>
"""


def _router(instance: Instance) -> str:
    targets = range(len(instance.settings.redirects_to))
    if not targets:
        return ""
    names = "".join(f"<connector-ref>target-{number}</connector-ref>" for number in targets)
    return f"""\
    <connection-routers>
      <connection-router name="redirect">
        <key-type>CLIENT_ID</key-type>
        <policy name="FIRST_ELEMENT"/>
        <pool>
          <username>{USER}</username>
          <password>{PASSWORD}</password>
          <check-period>{_CHECK_PERIOD}</check-period>
          <static-connectors>{names}</static-connectors>
        </pool>
      </connection-router>
    </connection-routers>
"""


def _mirror(instance: Instance) -> str:
    if not instance.settings.mirror_to:
        return ""
    uri = quoteattr(f"tcp://{instance.settings.mirror_to}")
    account = f"user={quoteattr(USER)} password={quoteattr(PASSWORD)}"
    return f"""\
    <broker-connections>
      <amqp-connection uri={uri} name="mirror" {account} retry-interval="200" reconnect-attempts="-1">
        <mirror sync="true"/>
      </amqp-connection>
    </broker-connections>
"""


def _address_settings(settings: Settings) -> str:
    limits = {limit.match: limit for limit in (Limit("#", "PAGE", -1), *settings.limits)}
    each = "".join(_address_setting(limit, anycast=settings.anycast) for limit in limits.values())
    unmade = f"""\
      <address-setting match={quoteattr(settings.unmade)}>
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
"""
    return f"    <address-settings>\n{each}{unmade if settings.unmade else ''}    </address-settings>"


def _address_setting(limit: Limit, *, anycast: bool) -> str:
    kind = (
        "<default-address-routing-type>ANYCAST</default-address-routing-type>"
        "<default-queue-routing-type>ANYCAST</default-queue-routing-type>"
    )
    return f"""\
      <address-setting match="{limit.match}">
        <redelivery-delay>0</redelivery-delay>
        <max-delivery-attempts>-1</max-delivery-attempts>
        <max-size-bytes>{limit.max_bytes}</max-size-bytes>
        <address-full-policy>{limit.policy}</address-full-policy>
        {kind if anycast else ""}
        <auto-create-queues>true</auto-create-queues>
        <auto-create-addresses>true</auto-create-addresses>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
"""


def _bootstrap(folder: Path) -> str:
    configuration = quoteattr(f"file:{folder}/etc/broker.xml")
    return f"""\
<?xml version="1.0"?>
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration={configuration}/>
</broker>
"""


def _login(settings: Settings) -> str:
    security = "org.apache.activemq.artemis.spi.core.security.jaas"
    guest = f"""
  {security}.GuestLoginModule sufficient
    org.apache.activemq.jaas.guest.user="{USER}"
    org.apache.activemq.jaas.guest.role="amq";"""
    # The realm's users have the guest's role: the module for Kerberos gives none.
    others = f"\n  {security}.Krb5LoginModule required;{guest}" if settings.kerberos else guest
    alone = not settings.guests and settings.kerberos is None
    return f"""\
activemq {{
  {security}.PropertiesLoginModule {"required" if alone else "sufficient"}
    org.apache.activemq.jaas.properties.user="artemis-users.properties"
    org.apache.activemq.jaas.properties.role="artemis-roles.properties";{"" if alone else others}
}};
{_realm(settings.kerberos)}"""


def _realm(kerberos: Kerberos | None) -> str:
    if kerberos is None:
        return ""
    return f"""\
{_REALM_SCOPE} {{
  com.sun.security.auth.module.Krb5LoginModule required
    isInitiator=false storeKey=true useKeyTab=true principal="*" keyTab="{kerberos.keytab}";
}};
"""


_PERMISSIONS = (
    "createNonDurableQueue",
    "deleteNonDurableQueue",
    "createDurableQueue",
    "deleteDurableQueue",
    "createAddress",
    "deleteAddress",
    "consume",
    "browse",
    "send",
    "manage",
)
_SECURITY = f"""\
    <security-settings>
      <security-setting match="#">
        {"".join(f'<permission type="{name}" roles="amq"/>' for name in _PERMISSIONS)}
      </security-setting>
    </security-settings>"""

_LOG = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
logger.probes.name = org.apache.activemq.artemis.core.client
logger.probes.level = ERROR
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5level [%logger] %msg%n
"""
