"""The route tables: live brokers, topics and their queues, and the rules that change them."""
