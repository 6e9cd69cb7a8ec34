"""Settings: their declarations, their sources, and the limits that follow from them."""
