"""An explicit-state model of the pair: every interleaving, against the broker's own rules.

``rules``   the decision functions, and the mutants that leave one of them out
``members`` the state of one member, and the renaming of its claims and names
``clients`` a client of the members, and an impostor
``moves``   all possible next moves; the decisions are those in ``broker_stub.election.generation``
``search``  breadth-first search, symmetry, counter-examples
``report``  a counter-example as text

    python -m tests.broker_stub.election.model --members 3 --messages 1 --generations 3
"""
