"""An explicit-state model of the pair: every interleaving, against the broker's own rules.

``rules``   which decision functions are used, and the mutants that leave one of them out
``members`` what one member is in the model, and how its claims and names are renamed
``clients`` a client of the members, and an impostor
``moves``   everything that can happen next; the decisions are those of ``broker_stub.election.generation``
``search``  breadth-first search, symmetry, counter-examples
``report``  a counter-example as text

    python -m tests.broker_stub.election.model --members 3 --messages 1 --generations 3
"""
