"""Settings: what there is, where values come from, and which limits follow from them."""
