"""What a user does with a table: create, open, append, scan, change, evolve, maintain it."""
