"""The order and the times of dials of the list: by the answers of members, or in ``plain_rounds``.

``dial_times`` keeps the dials of one address apart, for all searches of a factory.  Pure.
"""
