#!/bin/sh
# Mutation tests: changes server, wire, agent and client in small ways, one at a time, and counts the changes (mutants)
# that their tests notice.
# Usage: mutation.sh COUNT [PATTERN [PACKAGE...]]. Each package gets at most COUNT mutants, the same ones in each run;
# PATTERN (as for grep -E) selects functions by their dotted names. All mutants would take hours.
set -eu
cd "$(dirname "$0")/.."
count=$1
pattern=${2:-.}
[ $# -le 2 ] && packages='namesrv namesrv_remoting namesrv_broker_agent namesrv_client' || { shift 2; packages=$*; }
scratch=build/mutation
.venv/bin/python -c 'import mutmut' 2>/dev/null ||
    .venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --requirement locks/mutation.txt
rm -rf "$scratch"
mkdir -p "$scratch/src" "$scratch/tests/namesrv" "$scratch/tests/client" "$scratch/tests/broker_agent"
# mutmut derives module names from paths: with all packages below src/, the names are those of the imports.
cp -R runtime/namesrv_runtime remoting/namesrv_remoting namesrv/namesrv broker_agent/namesrv_broker_agent \
    client/namesrv_client "$scratch/src/"
cp -R tests/conftest.py tests/support tests/golden tests/remoting "$scratch/tests/"
cp -R tests/namesrv/conftest.py tests/namesrv/routeinfo tests/namesrv/processors "$scratch/tests/namesrv/"
cp -R tests/client/routes "$scratch/tests/client/"
cp tests/broker_agent/link/test_link.py tests/broker_agent/test_protocols.py tests/broker_agent/test_agent*.py "$scratch/tests/broker_agent/"
cp pyproject.toml "$scratch/"
# The tests of the wire read the examples in the manual.
mkdir "$scratch/docs"
cp docs/protocol.md "$scratch/docs/"
# mutmut passes test ids to pytest, which finds no test whose id contains `::`, as IPv6 addresses do.
printf '\n\ndef pytest_make_parametrize_id(argname):\n    return argname\n' >>"$scratch/tests/conftest.py"
cd "$scratch"
mutmut=../../.venv/bin/mutmut
# A run with few mutants makes all mutants, and records the functions that each test calls.
"$mutmut" run --max-children 1 'namesrv.routeinfo.tables.liveness.*__mutmut_1' >setup.txt 2>&1 || { tail -c 2000 setup.txt; exit 1; }
# Leave out the table of requests: Python builds it at import, before mutmut activates a mutant.
"$mutmut" results --all true | awk '{ sub(/:$/, "", $1); print $1 }' | grep -v -F requests.x__table__ |
    grep -E -e "$pattern" | sort >mutants.txt
# Take mutants at equal distances, so that each module of a package has its share.
for package in $packages; do
    grep "^$package\." mutants.txt >"$package.txt" || continue
    step=$(($(wc -l <"$package.txt") / count + 1))
    awk -v step="$step" 'NR % step == 0' "$package.txt" >"$package.chosen.txt"
    echo "$package: $(wc -l <"$package.chosen.txt") of $(wc -l <"$package.txt") mutants"
done
# Without arguments mutmut would run all mutants.
cat ./*.chosen.txt 2>/dev/null | grep -q . || { echo "no mutant of $packages matches '$pattern'"; exit 1; }
cat ./*.chosen.txt | xargs "$mutmut" run --max-children "$(nproc)" >run.txt 2>&1 || { tail -c 2000 run.txt; exit 1; }
"$mutmut" results --all true >all.txt
for chosen in ./*.chosen.txt; do
    # The colon makes grep match whole names.
    sed 's/$/:/' "$chosen" >names.txt
    grep -F -f names.txt all.txt | grep -v 'not checked' >results.txt || true
    grep -v -e killed -e timeout results.txt || true
    awk -v package="$(basename "$chosen" .chosen.txt)" '/killed|timeout/ { noticed++ }
        END { printf "%s: noticed %d of %d, %.0f %%\n", package, noticed, NR, NR ? 100 * noticed / NR : 0 }' results.txt
done
