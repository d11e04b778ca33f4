"""The objects that handlers hold: proton's connections, sessions, links, deliveries, over many engines."""
