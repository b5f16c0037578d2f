"""The specification as values: no I/O, no clock, no randomness."""
