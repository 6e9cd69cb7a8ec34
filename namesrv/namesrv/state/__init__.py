"""State besides the tables: boot, recent events, lost routes, watches, expected brokers, notifications to systemd."""
