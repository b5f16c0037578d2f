"""Measurements: each a ratio against a baseline in the same run, because machines are noisy."""
