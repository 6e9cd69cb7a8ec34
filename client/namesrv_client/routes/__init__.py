"""Routes: what is known of each topic, and how it is kept up to date."""
