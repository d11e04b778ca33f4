"""Name resolution by DNS, SRV records and the hosts file: the only I/O below ``engine``."""
