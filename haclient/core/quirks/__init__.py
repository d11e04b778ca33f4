"""Deviations of brokers from the specification, by product, and the workarounds of the client.

``products`` lists the measured deviations and explains each; docs/internals/quirks.md has their effects.
``workarounds`` has the client's measures for some of them.  The ``product`` and ``version`` in the properties
of its Open identify a broker.  No other module asks for a product.

Three of them need an explanation:

RabbitMQ keeps a receiver's credit with the leader of the queue.  When the leader moves to another node, it
forgets the credit, whatever node the connection is to.  (Measured with 3.10 and mirrored queues: one failover
in four.)  The receiver then gets no more messages, although both ends count credit.  A Flow that repeats the
credit repairs this, so the client sends RabbitMQ one every few seconds.

A receiver's first Flow may leave before the peer's Attach, which saves a round trip at each failover.  proton
writes delivery-count 0 into it, because the receiver cannot know the count yet.  If the peer's count begins
elsewhere, the peer computes a different credit.  RabbitMQ 4.0 begins at 2^32 - 5, sends five messages too
many, and ends the session at the next Flow.  With a credit of 1 the same message was delivered 21 times, and
others never.  So credit waits for the Attach, unless the count was measured to begin at 0:
``COUNTS_FROM_ZERO``.

After a failover a broker with duplicate detection may have kept the id of a message without the message, if
that was not durable.  Apache ActiveMQ Artemis then drops the copy that a client sends again, and accepts it.
Measured: 500 answers held back, the broker killed; all 500 messages with ids were lost.  So messages that
are not durable have ids only if the peer's Open announces that it loses both together, as ``broker_stub``
does.
``IDS_OUTLIVE_MESSAGES`` is the default, and no product is asked for by its name.

Sources: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it; section 2.7.4: the
delivery-count of a receiver "MUST NOT be set" before it has the sender's Attach.
"""
