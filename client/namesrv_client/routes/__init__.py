"""Routes: the known route of each topic, and the requests that keep it up to date."""
