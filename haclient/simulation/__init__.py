"""A reconnect storm in virtual time: the real clients against a modelled primary.

``scenario`` says what happens, ``fleet.simulate`` lets it happen, ``result`` holds the figures.
``clock`` is the virtual time, ``primary`` the model of the broker, ``world`` the members and the
tally.  ``ours`` drives the package's own ``discovery`` code, ``presets`` and ``others`` the
policies of other clients.  ``cases`` names comparisons, ``sweep`` varies a scenario (with Spark
where wanted), ``plot`` draws.  docs/simulation.md says what is modelled and what is not.
"""
