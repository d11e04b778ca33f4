"""The management node of a member: answers requests of the cluster-admin.

A request is a message to ``$management`` with the application properties ``operation``, ``type`` and
``name`` (or ``identity``), arguments in a map as its body, and a ``reply-to``.  The response carries
``statusCode`` and ``statusDescription``, and the request's correlation id.

====================  ==========================  ====================================================
type                  operation                   arguments; answer
====================  ==========================  ====================================================
``haclient.member``   ``READ``                    the member's status
``haclient.member``   ``UPDATE``                  ``members`` (a list of ``host:port``); the status
``haclient.member``   ``PROMOTE``                 ``generation`` (at least), ``force``; the status, and
                                                  ``warning``: what force may have lost
``haclient.member``   ``DEMOTE``                  ``primary`` (``host:port``); the new status
``haclient.member``   ``SET-PRIMARY``             ``primary``, ``generation``; the new status
``haclient.member``   ``STOP``                    nothing
``haclient.queue``    ``CREATE``                  ``x-qpid-replicate`` (or ``replicate``),
                                                  ``x-qpid-site-replicate``; its attributes
``haclient.queue``    ``UPDATE``                  ``x-qpid-site-replicate``; its attributes
``haclient.queue``    ``READ``                    its attributes, with depth and counters
``haclient.queue``    ``DELETE``                  nothing; its messages are lost
``haclient.exchange`` ``CREATE``                  ``type``, ``x-qpid-replicate``; of type ``replication``
                                                  also ``from`` and ``missing``; its attributes
``haclient.exchange`` ``UPDATE``                  ``applying``, of type ``replication``; its attributes
``haclient.exchange`` ``READ``, ``DELETE``        its attributes; nothing
``haclient.binding``  ``CREATE``                  ``exchange``, ``queue``, ``key``; its attributes
``haclient.binding``  ``READ``, ``DELETE``        by name or by the same three; its attributes; nothing
all but the member    ``QUERY``                   ``attributeNames``, ``offset``, ``count``;
                                                  ``attributeNames`` and ``results``, a page of at
                                                  most 500 rows
``haclient            ``QUERY``                   rows of ``link`` and ``queue``: what a link to
.followed_queue``                                 another site has filled here
====================  ==========================  ====================================================

Rules
-----
* Only the cluster-admin may use it: 403 for everybody else.
* The status of a member has no queues, and takes as long with 10,000 as with none: supervisors probe with it.
* Only a member that serves changes wiring: 409 at any other.  The response to a change follows when the
  change is durable, and on every replica that is ready.
* Status: 200, 201 for ``CREATE``, 204 for ``DELETE``; 400 for invalid arguments, 404 for an unknown object,
  405 for an attribute that cannot be changed, 409 for an operation that the state forbids, 501 for an
  operation that is not in the table.

Files: ``request`` (request, response, ``QUERY``), ``node`` (authorization, dispatch, errors), ``managed``
(the broker's interface), ``members``, ``queues``, ``exchanges``, ``bindings`` (a type each, and the queues
of links in ``queues``), ``wiring`` (names and replication modes, for the last three).

Source: AMQP Management 1.0, working draft 16, sections 2 and 3.
"""
