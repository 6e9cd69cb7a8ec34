"""`python -m namesrv` is the command `namesrv`."""

from namesrv_runtime import program

if __name__ == "__main__":
    program.namesrv()
