#!/bin/sh
# Compares both engines on each of these versions of PySpark, and on the locked version as a client of Spark Connect.
# Usage: versions.sh PYTHON VERSION ...
set -eu

python=$1
shift
for version in "$@"; do
    # PYTHONPATH puts this version before the locked one; the directory is kept for the next run.
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/namesrv/pyspark-$version
    if ! [ -d "$folder" ]; then
        "$python" -m pip install --quiet --target "$folder.new" "pyspark==$version"
        mv "$folder.new" "$folder"
    fi
    echo "PySpark $version:"
    PYTHONPATH=$folder "$python" -m pytest --numprocesses 0 tests/spark_jobs/test_agrees_with_reference.py
done

# The locked version, with the packages that a client of Spark Connect needs.
locked=$("$python" -c 'import pyspark; print(pyspark.__version__)')
folder=${XDG_CACHE_HOME:-$HOME/.cache}/namesrv/pyspark-connect-$locked
if ! [ -d "$folder" ]; then
    "$python" -m pip install --quiet --target "$folder.new" "pyspark[connect]==$locked" zstandard
    mv "$folder.new" "$folder"
fi
echo "Spark Connect of PySpark $locked:"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m tools.heartbeat_logs --lines 20000 --out "$work/heartbeats" >"$work/generated"
"$python" -m namesrv_spark_jobs "$work/heartbeats" --out "$work/embedded" --engine embedded --quiet
PYTHONPATH=$folder SPARK_REMOTE=local[2] "$python" -m namesrv_spark_jobs "$work/heartbeats" --out "$work/connect" --engine spark --quiet 2>"$work/log" || {
    cat "$work/log"
    exit 1
}
cmp "$work/embedded/summary.json" "$work/connect/summary.json"
echo "the summary equals the embedded engine's"
