"""Simulate a reconnect storm in virtual time: the real clients against a modelled primary.

``scenario`` describes the storm, ``fleet.simulate`` runs it, ``result`` holds the figures.  ``clock`` is the
virtual time, ``primary`` the model of the broker, ``world`` the members and the counts.  ``haclient_clients``
drives the package's own ``discovery`` code, ``plot`` draws.  docs/simulation.md lists the modelled and the
omitted effects.
"""
