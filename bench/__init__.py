"""Measurements. Most are ratios to a baseline in the same run, because machines are noisy."""
