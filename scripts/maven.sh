# Sourced: sees that there is Maven, with which tests fetch Kafka's broker and Flink's dashboard; installs it where that is allowed.

install_maven() {
    command -v apt-get >/dev/null || return 1
    local root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    echo "setup: installing Maven from the system's packages" >&2
    "${root[@]}" apt-get update -q >&2 &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q maven >&2
}

command -v mvn >/dev/null || install_maven || {
    echo "Tests need Maven, to fetch Kafka's broker and Flink's dashboard, and there is no mvn on the PATH." >&2
    echo "Install it (Debian, Ubuntu: apt-get install maven)." >&2
    exit 2
}
