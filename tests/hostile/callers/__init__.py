"""Programs run against a hostile broker, each as a separate process.

A caller makes random calls from a seed for some seconds, and exits with 0. It prints ``ready`` when
everything is imported, and at its end a report in JSON: the number of calls by call and result, and the
defects.
"""
