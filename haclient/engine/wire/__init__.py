"""What is read of a peer's bytes before, or beside, proton."""
