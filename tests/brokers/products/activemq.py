"""A pair of ActiveMQ Classic brokers with a shared store; Amazon MQ runs this engine.

The member that holds the store's lock serves. The passive one opens no port until it has the lock.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from haclient.cluster_url.endpoint import Endpoint
from haclient.testing.peers.listening import loopback_host
from tests.brokers.bare import Account
from tests.brokers.products import installed
from tests.brokers.products.group import COMMON, Group, Member
from tests.brokers.products.member_process import MemberProcess
from tests.brokers.topology import Fault, Launch, Served, Stored
from tests.dnsmasq import free_port

_JAVA = ("-Xms128M", "-Xmx384M", "-XX:+UseSerialGC")
# Milliseconds between two tries to lock. The default of ten seconds would be most of an outage.
_LOCK_MILLISECONDS = 500
FEW = 2
"""The limit of connections at each member's second port (``ActiveMQ.few``)."""
_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
           http://www.springframework.org/schema/beans/spring-beans.xsd
           http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName={name} dataDirectory={data}
          useJmx="false" useShutdownHook="true" schedulerSupport="true">
    <persistenceAdapter>
      <kahaDB directory={store}>
        <locker><shared-file-locker lockAcquireSleepInterval="{lock}"/></locker>
      </kahaDB>
    </persistenceAdapter>
    {elements}
    <transportConnectors>
      <transportConnector name="amqp" uri="amqp://{listen}?maximumConnections=1000"/>
      <transportConnector name="few" uri="amqp://{few}?maximumConnections={few_connections}"/>
    </transportConnectors>
  </broker>
</beans>
"""


class ActiveMQ:
    """See ``BrokerCluster``.

    :param elements: more elements of ``activemq.xml``, for both brokers.
    :ivar few: each member's address that allows only ``FEW`` connections.
    """

    name = "activemq"
    version = installed.ACTIVEMQ_VERSION
    detects_duplicates = False
    faults = COMMON

    def __init__(self, launch: Launch, elements: str = "") -> None:
        self._launch = launch
        self._elements = elements
        self._folder = launch.folder
        self.few: list[Endpoint] = []
        self.members = [self._member(number) for number in range(2)]
        self.group = Group(self.members, Account())

    @property
    def url(self) -> str:
        """See ``BrokerCluster``."""
        return f"amqp://{self.group.addresses}"

    async def start(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.open_routes(self._launch.fault)
        await self.whole()

    async def stop(self) -> None:
        """See ``BrokerCluster``."""
        await self.group.stop()

    async def inject(self, fault: Fault) -> float:
        """See ``BrokerCluster``."""
        await self.whole()
        return await self.group.inject(fault)

    async def serving(self) -> Served:
        """See ``BrokerCluster``."""
        return await self.group.serving()

    async def whole(self) -> None:
        """See ``BrokerCluster``; the passive member waits for the lock."""
        await self.group.whole()
        primary = await self.group.primary()
        waiting = next(each.process for each in self.members if each is not primary)
        assert isinstance(waiting, MemberProcess)

        async def waits() -> bool:
            return waiting.last("is locked by another server") >= 0

        await self.group.until(waits, f"{waiting.name} that waits for the lock")

    def queue(self, name: str) -> str:
        """See ``BrokerCluster``."""
        return name

    async def drain(self, name: str) -> list[Stored]:
        """See ``BrokerCluster``."""
        return await self.group.drain(name)

    def _member(self, number: int) -> Member:
        folder = self._folder / f"member-{number}"
        (folder / "data").mkdir(parents=True)
        host = loopback_host()
        listen, few = Endpoint(host, free_port(host)), Endpoint(host, free_port(host))
        configuration = folder / "activemq.xml"
        configuration.write_text(
            _XML.format(
                name=quoteattr(f"member-{number}"),
                data=quoteattr(str(folder / "data")),
                store=quoteattr(str(self._folder / "store")),
                lock=_LOCK_MILLISECONDS,
                elements=self._elements,
                listen=listen.authority,
                few=few.authority,
                few_connections=FEW,
            )
        )
        home = installed.ACTIVEMQ
        properties = {
            "activemq.home": home,
            "activemq.base": folder,
            "activemq.conf": folder,
            "activemq.data": folder / "data",
            "java.io.tmpdir": folder / "data",
            "log4j2.configurationFile": f"file:{home}/conf/log4j2.properties",
        }
        defined = (f"-D{name}={value}" for name, value in properties.items())
        jar = ("-jar", str(home / "bin" / "activemq.jar"), "start", f"xbean:file:{configuration}")
        process = MemberProcess(
            f"{self.name} member-{number}", ("java", *_JAVA, *defined, *jar), folder / "log"
        )
        self.few.append(few)
        return Member(process, listen)
