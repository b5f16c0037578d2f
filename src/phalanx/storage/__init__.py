"""How a table is stored: its manifest, leaves and names. Only this package calls Lance."""
