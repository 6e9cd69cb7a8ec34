"""State besides the tables: recent events, watches, expected brokers, notifications to systemd."""
