"""Nothing is settled before everyone who must have it has it: persister, restore, guard."""
