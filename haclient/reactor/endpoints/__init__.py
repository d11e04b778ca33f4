"""What handlers hold: proton's connections, sessions, links and deliveries, moved from engine to engine."""
