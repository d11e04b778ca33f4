"""What is run against a hostile broker, each program as a process of its own.

A caller makes calls drawn at random from a seed, for some seconds, and ends with 0.  It prints ``ready`` when
everything is imported, and at its end a report in JSON: how often each call ended how, and what was wrong.
"""
