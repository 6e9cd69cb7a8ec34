#!/bin/sh
# Runs what both engines must agree on with other versions of PySpark than the locked one: versions.sh PYTHON VERSION ...
set -eu

python=$1
shift
for version in "$@"; do
    # in front of the locked one; kept for the next time
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/namesrv/pyspark-$version
    if ! [ -d "$folder" ]; then
        "$python" -m pip install --quiet --target "$folder.new" "pyspark==$version"
        mv "$folder.new" "$folder"
    fi
    echo "PySpark $version:"
    PYTHONPATH=$folder "$python" -m pytest --numprocesses 0 tests/spark_jobs/test_agrees_with_reference.py
done
