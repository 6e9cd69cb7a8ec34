#!/bin/sh
# Changes tables, wire, the agent's link and the client's keeper in some hundred small ways, one at a time, and looks
# whether their tests notice.
# mutation.sh COUNT [PATTERN [PACKAGE...]]: so many mutants of each package, the same ones each time, or only of these
# packages and of functions whose dotted name matches the pattern (as of grep -E); all of them would take hours.
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
# mutmut names a module by its path: side by side below src/ it is that of an import
cp -R runtime/namesrv_runtime remoting/namesrv_remoting namesrv/namesrv broker_agent/namesrv_broker_agent \
    client/namesrv_client "$scratch/src/"
cp -R tests/conftest.py tests/support tests/golden tests/remoting "$scratch/tests/"
cp -R tests/namesrv/conftest.py tests/namesrv/routeinfo tests/namesrv/processors "$scratch/tests/namesrv/"
cp -R tests/client/routes "$scratch/tests/client/"
cp tests/broker_agent/test_link.py tests/broker_agent/test_protocols.py tests/broker_agent/test_agent*.py "$scratch/tests/broker_agent/"
cp pyproject.toml "$scratch/"
# the manual's vectors are tested
mkdir "$scratch/docs"
cp docs/protocol.md "$scratch/docs/"
# mutmut asks for tests by their ids, and pytest finds none whose id has a :: in it, as that of an IPv6 address
printf '\n\ndef pytest_make_parametrize_id(argname):\n    return argname\n' >>"$scratch/tests/conftest.py"
cd "$scratch"
mutmut=../../.venv/bin/mutmut
# one of each kind makes them all, and learns which tests run what
"$mutmut" run --max-children 1 'namesrv.routeinfo.liveness.*__mutmut_1' >setup.txt 2>&1 || { tail -c 2000 setup.txt; exit 1; }
# the table of requests is made while its module is imported, which is before a mutant is chosen
"$mutmut" results --all true | awk '{ sub(/:$/, "", $1); print $1 }' | grep -v -F requests.x__table__ |
    grep -E -e "$pattern" | sort >mutants.txt
# every so-many-th of each package, so that each module has its share
for package in $packages; do
    grep "^$package\." mutants.txt >"$package.txt" || continue
    step=$(($(wc -l <"$package.txt") / count + 1))
    awk -v step="$step" 'NR % step == 0' "$package.txt" >"$package.chosen.txt"
    echo "$package: $(wc -l <"$package.chosen.txt") of $(wc -l <"$package.txt") mutants"
done
# without a name mutmut would try them all
cat ./*.chosen.txt 2>/dev/null | grep -q . || { echo "no mutant of $packages matches '$pattern'"; exit 1; }
cat ./*.chosen.txt | xargs "$mutmut" run --max-children "$(nproc)" >run.txt 2>&1 || { tail -c 2000 run.txt; exit 1; }
"$mutmut" results --all true >all.txt
for chosen in ./*.chosen.txt; do
    # whole names: one may begin as another does
    sed 's/$/:/' "$chosen" >names.txt
    grep -F -f names.txt all.txt | grep -v 'not checked' >results.txt || true
    grep -v -e killed -e timeout results.txt || true
    awk -v package="$(basename "$chosen" .chosen.txt)" '/killed|timeout/ { noticed++ }
        END { printf "%s: noticed %d of %d, %.0f %%\n", package, noticed, NR, NR ? 100 * noticed / NR : 0 }' results.txt
done
