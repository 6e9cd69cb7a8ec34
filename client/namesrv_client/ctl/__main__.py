"""`python -m namesrv_client.ctl` is `namesrvctl`."""

from namesrv_runtime import program

if __name__ == "__main__":
    program.namesrvctl()
