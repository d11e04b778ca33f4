"""The management node of a member: answers requests of the cluster-admin.

A request is a message to ``$management``.  It has the application properties ``operation``, ``type`` and
``name`` (or ``identity``), a map of arguments as its body, and a ``reply-to``.  The response carries
``statusCode`` and ``statusDescription``, and the request's correlation id.

====================  ==========================  ====================================================
type                  operation                   arguments; answer
====================  ==========================  ====================================================
``haclient.member``   ``READ``                    the member's status
``haclient.member``   ``UPDATE``                  ``members`` (a list of ``host:port``); the status
``haclient.member``   ``PROMOTE``                 ``generation`` (at least), ``force``; the status, and
                                                  ``warning``: losses that force may have caused
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
``haclient            ``QUERY``                   rows of ``link`` and ``queue``: queues here that a
.followed_queue``                                 link to another site has filled
====================  ==========================  ====================================================

Rules
-----
* Only the cluster-admin may use it; all other users get 403.
* The status of a member contains no queues. It takes as long with 10,000 queues as with none, because
  supervisors probe with it.
* Only a serving member changes wiring; all others answer 409. The response to a change follows when the
  change is durable here and on every ready replica.
* Status: 200, 201 for ``CREATE``, 204 for ``DELETE``. Errors: 400 for invalid arguments, 404 for an unknown
  object, 405 for an unchangeable attribute, 409 if the state forbids the operation. Operations that are not
  in the table answer 501.

Files: ``request`` (request, response, ``QUERY``), ``node`` (authorization, dispatch, errors), ``managed``
(the broker's interface). ``members``, ``queues``, ``exchanges`` and ``bindings`` each implement a type;
``queues`` also lists the queues of links. ``wiring`` has names and replication modes for the last three.

Source: AMQP Management 1.0, working draft 16, sections 2 and 3.
"""
