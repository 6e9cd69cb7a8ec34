"""The heartbeat log: events of brokers, routes and responses, for later analysis."""
