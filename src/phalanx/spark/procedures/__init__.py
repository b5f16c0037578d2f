"""Procedures: `CALL <catalog>.system.<name>(…)`."""
