# Sourced: sees that there is promtool, for the tests of alarms; installs it where that is allowed.

install_promtool() {
    command -v apt-get >/dev/null || return 1
    local root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    echo "setup: installing promtool from the system's packages" >&2
    "${root[@]}" apt-get update -q >&2 &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends prometheus >&2
}

command -v promtool >/dev/null || install_promtool || {
    echo "Tests of alarms need promtool, and it is not on the PATH." >&2
    echo "Install it (Debian: apt-get install prometheus)." >&2
    exit 2
}
