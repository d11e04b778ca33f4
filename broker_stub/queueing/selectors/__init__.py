"""Message selectors: conditions on the header and the properties of a message.  No I/O.

The language is the selector syntax of JMS: ``colour = 'red' AND weight BETWEEN 2 AND 3.5``.  An identifier is
an application property, or one of the names in ``fields`` (``JMSType``, ``amqp.subject``).

Rules
-----
* An absent property is unknown, and so is a comparison with it; ``NOT`` of unknown is unknown.
  A selector selects a message if the condition is true, not if it is unknown.
* Values of different types are neither equal nor unequal: the comparison is false.  All numbers are one type.
* Arithmetic is unknown if an operand is not a number, if it divides by zero, or if the result exceeds a
  float.
* Length and depth of a selector are limited.  Its time grows with the sum of its size and the message's, and
  for ``LIKE`` with their product; both are limited (``pattern``).

Sources: Jakarta Messaging 3.1, section 3.8.1 (selector syntax) and 3.8.2 (null values); the AMQP filter
``apache.org:selector-filter:string``; the ``amqp.`` names of Apache Qpid's C++ broker.
"""

from broker_stub.queueing.selectors.fields import Fields
from broker_stub.queueing.selectors.selector import Selector
from broker_stub.queueing.selectors.words import SelectorError

__all__ = ["Fields", "Selector", "SelectorError"]
