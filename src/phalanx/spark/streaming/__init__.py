"""Reading and writing tables as streams."""
