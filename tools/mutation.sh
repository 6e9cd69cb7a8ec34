#!/bin/sh
# Changes the tables and the wire in some hundred small ways, one at a time, and looks whether their tests notice.
# mutation.sh COUNT: so many mutants of all that there are, the same ones each time; all of them would take hours.
set -eu
cd "$(dirname "$0")/.."
count=$1
scratch=build/mutation
.venv/bin/python -c 'import mutmut' 2>/dev/null ||
    .venv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement locks/mutation.txt
rm -rf "$scratch"
mkdir -p "$scratch/src" "$scratch/tests/namesrv"
# mutmut names a module by its path: side by side below src/ it is that of an import
cp -R runtime/namesrv_runtime remoting/namesrv_remoting namesrv/namesrv broker_agent/namesrv_broker_agent \
    client/namesrv_client "$scratch/src/"
cp -R tests/conftest.py tests/support tests/golden tests/remoting "$scratch/tests/"
cp -R tests/namesrv/routeinfo "$scratch/tests/namesrv/"
cp pyproject.toml "$scratch/"
# mutmut asks for tests by their ids, and pytest finds none whose id has a :: in it, as that of an IPv6 address
printf '\n\ndef pytest_make_parametrize_id(argname):\n    return argname\n' >>"$scratch/tests/conftest.py"
cd "$scratch"
mutmut=../../.venv/bin/mutmut
# one of each kind makes them all, and learns which tests run what
"$mutmut" run --max-children 1 'namesrv.routeinfo.liveness.*__mutmut_1' >setup.txt 2>&1 || { tail -c 2000 setup.txt; exit 1; }
"$mutmut" results --all true | awk '{ sub(/:$/, "", $1); print $1 }' | sort >mutants.txt
# every so-many-th, so that each module has its share
step=$(($(wc -l <mutants.txt) / count + 1))
awk -v step="$step" 'NR % step == 0' mutants.txt >chosen.txt
echo "$(wc -l <chosen.txt) of $(wc -l <mutants.txt) mutants"
xargs "$mutmut" run --max-children "$(nproc)" <chosen.txt >run.txt 2>&1 || { tail -c 2000 run.txt; exit 1; }
"$mutmut" results --all true | grep -F -f chosen.txt | grep -v 'not checked' >results.txt
grep -v -e killed -e timeout results.txt || true
awk '/killed|timeout/ { noticed++ } END { printf "noticed: %d of %d, %.0f %%\n", noticed, NR, 100 * noticed / NR }' results.txt
