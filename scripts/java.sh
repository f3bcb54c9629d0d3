# Sourced: sets JAVA_HOME to a Java runtime of version 17 or newer; installs one where that is allowed.

java_version() { # java_version PATH: its major version, or nothing
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_new_enough() {
    local version
    version="$(java_version "$1")"
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

find_java_home() {
    local candidate
    for candidate in "${JAVA_HOME:-}/bin/java" "$(command -v java)" \
        /usr/lib/jvm/*17*/bin/java /usr/lib/jvm/*21*/bin/java /usr/lib/jvm/*/bin/java \
        /opt/java/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java; do
        if [ -x "$candidate" ] && java_is_new_enough "$candidate"; then
            candidate="$(readlink -f "$candidate" 2>/dev/null || echo "$candidate")"
            dirname "$(dirname "$candidate")"
            return 0
        fi
    done
    return 1
}

install_java() {
    command -v apt-get >/dev/null || return 1
    local root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    echo "setup: installing a Java 17 runtime from the system's packages" >&2
    "${root[@]}" apt-get update -q >&2 &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q openjdk-17-jre-headless >&2
}

JAVA_HOME="$(find_java_home || { install_java && find_java_home; })" || {
    echo "Spark needs Java 17 or newer, and none was found in JAVA_HOME, on the PATH or in the usual folders." >&2
    echo "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2
    exit 2
}
export JAVA_HOME
