# shellcheck shell=sh
# Functions to source: a Debian 12 in a directory, made with debootstrap from this machine's own package mirror.
: "${work:?}"

make_debian() { # directory, packages separated by commas
    # apt-get expands $(...) in the format, not the shell.
    # shellcheck disable=SC2016
    source=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
    [ -n "$source" ] || {
        echo "cannot make $1: apt has no source for Debian 12 (bookworm main)" >&2
        return 1
    }
    timeout 900 debootstrap --variant=minbase --include="$2" bookworm "$1" "$source" >"$work/debootstrap.log" 2>&1 || {
        tail -n 20 "$work/debootstrap.log" >&2
        return 1
    }
}
