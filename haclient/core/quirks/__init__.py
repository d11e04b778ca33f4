"""Deviations of brokers from the specification, by product, and the workarounds of the client.

``products`` has what was measured, and what each quirk means; docs/broker-answers.md has the same for users.
``workarounds`` has what the client does about some.  A broker is known by the ``product`` and the ``version``
in the properties of its Open.  No other module asks for a product.

Three of them need an explanation:

RabbitMQ keeps a receiver's credit with the leader of the queue, and forgets it when the leader moves to
another node, whether this connection was to that node or not (measured with 3.10 and mirrored queues: one
failover in four).  The receiver then gets nothing more, with credit on both ends.  A Flow that repeats the
credit mends it, so the client sends RabbitMQ one every few seconds.

A receiver's first Flow may leave before the peer's Attach, which saves a round trip at each failover.  proton
writes the delivery-count into it, which the receiver cannot know yet: 0.  A peer whose count begins elsewhere
reads another credit: RabbitMQ 4.0 begins at 2^32 - 5, sends five messages too many, and ends the session when
the next Flow tells it so; with a credit of 1 the same message came 21 times, and others never.  So credit
waits for the Attach, but where the count was measured to begin at 0: ``COUNTS_FROM_ZERO``.

A broker with duplicate detection may keep the id of a message over a failover and not the message, where that
was not durable: Apache ActiveMQ Artemis does, and drops the copy that a client sends again, with the answer
accepted (500 answers held back, broker killed: of 500 messages with ids none was there).  So messages that
are not durable have ids only where the peer's Open says that both live and die together, as that of
``broker_stub`` does: ``IDS_OUTLIVE_MESSAGES`` is the rule, and no product is asked for by its name.

Sources: AMQP 1.0 part 2, section 2.6.7: a Flow states the credit, it does not add to it; section 2.7.4: the
delivery-count of a receiver "MUST NOT be set" before it has the sender's Attach.
"""
