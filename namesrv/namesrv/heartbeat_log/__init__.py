"""The heartbeat log: what happens to brokers, routes and answers, for later analysis."""
