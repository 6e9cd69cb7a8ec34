"""The asyncio client, TLS contexts and credentials, on top of the protocol."""
