"""The queues of topics: listing them, selecting the next one to send to, dividing them among consumers."""
