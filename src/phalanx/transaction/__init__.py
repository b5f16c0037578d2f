"""Snapshots and the transactions that lead from one to the next."""
