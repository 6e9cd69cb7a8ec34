"""The command `namesrv-staleness`: its arguments, input and output, and the Spark session."""
