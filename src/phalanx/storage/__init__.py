"""Where a table lives: its manifest, its leaves, their names. Only this room calls Lance."""
