#!/usr/bin/env bash
# Everything that a machine can say about the source in under a minute. Prints what failed.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT

names=() pids=()
start() { # start NAME COMMAND...
    local name="$1"
    shift
    "$@" >"$logs/$name" 2>&1 &
    names+=("$name") pids+=("$!")
}

static() {
    local ok=0
    "$bin/ruff" format --check . || ok=1
    "$bin/ruff" check . || ok=1
    "$bin/python" scripts/contracts.py || ok=1
    "$bin/pyright" || ok=1
    return "$ok"
}

start static static
start tests "$bin/python" -m pytest -q -n 2 -m "not slow and not spark" \
    --ignore=tests/spark --ignore=tests/simulation --hypothesis-profile=quick

failed=0
for i in "${!names[@]}"; do
    if wait "${pids[$i]}"; then
        echo "check: ${names[$i]} ok: $(tail -n 1 "$logs/${names[$i]}")"
    else
        failed=1
        echo "check: ${names[$i]} FAILED"
        cat "$logs/${names[$i]}"
    fi
done
exit "$failed"
