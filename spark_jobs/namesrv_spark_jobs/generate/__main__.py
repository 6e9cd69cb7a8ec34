"""`python -m namesrv_spark_jobs.generate`."""

import sys

from namesrv_spark_jobs.generate.cli import main

if __name__ == "__main__":
    sys.exit(main())
