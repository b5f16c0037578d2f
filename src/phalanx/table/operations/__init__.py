"""The changes a user can make, each as an operation that a transaction can run again.

An operation keeps what it has worked out for each leaf. Run again on a newer snapshot, it uses
that where the rules of `phalanx.transaction.conflicts` allow, and works out the rest anew.
"""
