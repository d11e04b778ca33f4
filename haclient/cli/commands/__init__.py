"""The commands of ``haclient``, one module each."""
