#!/usr/bin/env bash
# Everything that a machine can say about the source in under a minute. Prints what failed.
# check.sh source: without the tests, for who runs all of them next.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
# pytest keeps the tests that it has prepared as bytecode; without, each worker prepares all anew.
unset PYTHONDONTWRITEBYTECODE

names=() pids=()
start() { # start NAME COMMAND...
    local name="$1"
    shift
    timed "$name" "$@" >"$logs/$name" 2>&1 &
    names+=("$name") pids+=("$!")
}

timed() { # timed NAME COMMAND...
    local name="$1" began="$SECONDS" status=0
    shift
    "$@" || status=1
    echo "$((SECONDS - began)) s" >"$logs/$name.time"
    return "$status"
}

lint() {
    local status=0
    "$bin/ruff" format --check . || status=1
    "$bin/ruff" check . || status=1
    "$bin/python" scripts/contracts.py || status=1
    return "$status"
}

start lint lint
# What has not changed since it was found right is looked at again by make test alone.
start types "$bin/python" scripts/check_types.py $([ "${1:-}" = source ] && echo all)
# Two runs that share out the files: xdist would collect all in each worker, and report each test.
parts="1 2"
[ "${1:-}" = source ] && parts=""
for part in $parts; do
    start "tests-$part" "$bin/python" -m pytest -q --part "$part/2" -m "not slow and not spark" \
        --ignore=tests/spark --ignore=tests/simulation --hypothesis-profile=quick -p no:cacheprovider
done

failed=0
for i in "${!names[@]}"; do
    name="${names[$i]}"
    if wait "${pids[$i]}"; then
        echo "check: $name ok in $(cat "$logs/$name.time"): $(tail -n 1 "$logs/$name")"
    else
        failed=1
        echo "check: $name FAILED after $(cat "$logs/$name.time")"
        cat "$logs/$name"
    fi
done
exit "$failed"
