# Sourced: sees that there are Chromium and its driver, for the tests that open pages; installs them where that is allowed.

install_chromium() {
    command -v apt-get >/dev/null || return 1
    local root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    echo "setup: installing Chromium from the system's packages" >&2
    "${root[@]}" apt-get update -q >&2 &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends chromium chromium-driver >&2
}

{ command -v chromium && command -v chromedriver; } >/dev/null || install_chromium || {
    echo "Tests of pages need Chromium and its driver, and they are not on the PATH." >&2
    echo "Install them (Debian: apt-get install chromium chromium-driver)." >&2
    exit 2
}
