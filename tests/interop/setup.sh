#!/bin/sh
# Fetches the real peers into .interop/<peer>/lib and compiles our Java and Go programs; quick when nothing changed.
#
# A tool that this machine does not have is reported and written to .interop/absent, and the tests that need it are
# skipped with that reason. Everything else that is missing is a failure.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
into=$root/.interop

# what is asked for, by content: a fresh clone or a touched file fetches nothing anew
state_of() {
    cat "$@" | cksum
}

is_current() { # stamp, files
    stamp=$1
    shift
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(state_of "$@")" ]
}

# two runs may be started at the same moment
mkdir -p "$into"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$into/lock"
    flock 9
fi

: >"$into/absent.new"
for tool in java javac mvn go prometheus; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$tool" >>"$into/absent.new"
        echo "interop: $tool IS NOT INSTALLED ON THIS MACHINE, tests that need it are skipped" >&2
    fi
done
mv "$into/absent.new" "$into/absent"

fetch() { # peer
    pom=$here/maven/$1/pom.xml
    if is_current "$into/$1/stamp" "$pom"; then
        return
    fi
    echo "interop: fetching $1" >&2
    rm -rf "${into:?}/$1"
    mvn --batch-mode --quiet --file "$pom" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$into/$1/lib" >&2
    # read back: a peer without its jar must not look as if it were there
    ls "$into/$1/lib/"*.jar >/dev/null
    state_of "$pom" >"$into/$1/stamp"
}

if ! grep -qx go "$into/absent" && ! is_current "$into/go/stamp" "$here"/go/*.go "$here"/go/go.*; then
    echo "interop: building tests/interop/go" >&2
    rm -rf "$into/go"
    (cd "$here/go" && go vet . && go build -buildvcs=false -mod=readonly -o "$into/go/driver" .) >&2
    state_of "$here"/go/*.go "$here"/go/go.* >"$into/go/stamp"
fi

if grep -qxE 'java|javac|mvn' "$into/absent"; then
    exit 0
fi

for peer in "$here"/maven/*/; do
    fetch "$(basename "$peer")"
done

compile() { # client whose classes the programs use, files
    client=$1
    shift
    javac --release 11 -Xlint:all -Werror -proc:none -cp "$into/$client/lib/*" -d "$into/java/classes" "$@"
}

if ! is_current "$into/java/stamp" "$here"/java/*.java "$here"/java/grpc/*.java "$into"/client-5/stamp "$into"/grpc-5/stamp; then
    echo "interop: compiling tests/interop/java" >&2
    rm -rf "$into/java"
    mkdir -p "$into/java/classes"
    compile client-5 "$here"/java/*.java
    compile grpc-5 "$here"/java/grpc/*.java
    state_of "$here"/java/*.java "$here"/java/grpc/*.java "$into"/client-5/stamp "$into"/grpc-5/stamp >"$into/java/stamp"
fi
