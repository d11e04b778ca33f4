"""Several members on one machine: their processes, and who is primary."""
