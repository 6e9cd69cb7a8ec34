"""`python -m namesrv_console` is `namesrv-console`."""

from namesrv_runtime import program

if __name__ == "__main__":
    program.namesrv_console()
