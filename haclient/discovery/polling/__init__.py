"""Which member of the list is dialled next, and when: by what each answered, or in ``plain_rounds``.

``dial_times`` keeps the dials of one address apart, for all searches of a factory.  Pure.
"""
