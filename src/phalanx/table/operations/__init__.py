"""The changes a user can make, each as an operation that a transaction can run again.

An operation keeps its result for each leaf. When it runs again on a newer snapshot, it reuses the
results that the rules of `phalanx.transaction.conflicts` allow, and computes the others again.
"""
