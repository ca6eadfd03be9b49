# Debian packages by what needs them; sourced by the scripts beside it.

packages_build="g++ cmake ninja-build acpica-tools libabsl-dev libcli11-dev libspdlog-dev libfmt-dev liburing-dev nlohmann-json3-dev"
packages_benchmark="libgtest-dev libgmock-dev libbenchmark-dev"
packages_lab="qemu-system-x86 busybox-static python3 e2fsprogs lz4 zstd fio xfsprogs lvm2 passt iperf3 dropbear-bin socat"
packages_compare="python3 python3-matplotlib fio qemu-system-x86 iproute2"
packages_test="$packages_benchmark $packages_compare ccache clang-19 clang-tidy-19 libclang-rt-19-dev lld-19 llvm-19 git curl memtest86+ pkgconf python3-jsonschema"

# install_packages NAME...: installs those that are missing; says what it does, and what to do where
# it cannot.
install_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "$0: missing packages; as root, run: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "installing ${missing[*]}"
    # An old package list may name files that are gone.
    "${as_root[@]}" apt-get -qq update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq install --no-install-recommends -y "${missing[@]}" >/dev/null
}

# check_system: Debian 12 is what this is tested on; others are tried, and told so.
check_system() {
    local id version
    id=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown}")
    version=$(. /etc/os-release 2>/dev/null && echo "${VERSION_ID:-}")
    case "$id $version" in
        "debian 12") ;;
        "ubuntu "*) echo "note: made for Debian 12; on Ubuntu $version this is best effort" ;;
        *) echo "note: made for Debian 12; $id $version is untried" ;;
    esac
    if ! command -v apt-get >/dev/null; then
        echo "$0: needs apt-get (Debian or Ubuntu)" >&2
        return 1
    fi
}
