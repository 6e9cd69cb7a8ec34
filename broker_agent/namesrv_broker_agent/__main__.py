"""`python -m namesrv_broker_agent` is the command `namesrv-broker-agent`."""

from namesrv_runtime import program

if __name__ == "__main__":
    program.namesrv_broker_agent()
