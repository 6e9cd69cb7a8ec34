"""The asyncio shells around the wire: server, client, clocks and loops."""
