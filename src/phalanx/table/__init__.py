"""Tables: create, open, read, change, evolve and maintain them."""
