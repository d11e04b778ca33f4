"""Message selectors: a condition on the header and the properties of a message.  No I/O.

The language is that of JMS: ``colour = 'red' AND weight BETWEEN 2 AND 3.5``.  An identifier is an application
property, or one of the names in ``fields`` (``JMSType``, ``amqp.subject``).

Rules
-----
* A property that is absent is unknown, and so is what is compared with it; ``NOT`` of unknown is unknown.
  A message is selected where the condition is true, not where it is unknown.
* Values of different types are neither equal nor unequal: the comparison is false.  All numbers are one type.
* Arithmetic with what is no number, division by zero and a result out of a float's range are unknown.
* A selector has a bounded length and depth, and takes time in proportion to its own size and the message's;
  ``LIKE`` to their product, both of them bounded (``pattern``).

Sources: Jakarta Messaging 3.1, section 3.8.1 (selector syntax) and 3.8.2 (null values); the AMQP filter
``apache.org:selector-filter:string``; the ``amqp.`` names of Apache Qpid's C++ broker.
"""

from broker_stub.queueing.selectors.fields import Fields
from broker_stub.queueing.selectors.selector import Selector
from broker_stub.queueing.selectors.words import SelectorError

__all__ = ["Fields", "Selector", "SelectorError"]
