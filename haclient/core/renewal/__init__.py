"""A planned reconnect with a new token.

* ``schedule``  when it begins
* ``quiesce``   how no message is left in doubt
"""
