#!/bin/sh
# Installs into a private prefix and builds the README's program against it as a stranger would, with
# pkg-config and with CMake, from a folder of its own; then runs it on the installed daemon.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
daemon=
clean_up() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap clean_up EXIT

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || die "cmake --install failed"

expect() {
    for file in "$@"; do
        [ -s "$prefix/$file" ] || die "not installed: $file"
    done
}
expect sbin/commgemmd libexec/commgemm/commgemm-executor-cpu bin/commgemmctl bin/commgemm-bench \
    include/commgemm.h lib/systemd/system/commgemmd.service lib/systemd/system/commgemmd.socket \
    lib/systemd/system/commgemm-mps.service \
    lib/sysusers.d/commgemm.conf lib/tmpfiles.d/commgemm.conf etc/commgemm/commgemmd.conf \
    share/man/man7/commgemm.7 share/man/man8/commgemmd.8 share/man/man1/commgemmctl.1 share/man/man1/commgemm-bench.1 \
    share/man/man3/libcommgemm.3 share/doc/commgemm/README.md \
    share/commgemm/shapes/peers.shapes share/commgemm/shapes/frameworks.shapes

if command -v mandoc >/dev/null; then
    find "$prefix/share/man" -type f -exec mandoc -T lint -W warning {} +
fi

lib=$(dirname "$(find "$prefix" -name libcommgemm-client.so)")
PKG_CONFIG_PATH=$lib/pkgconfig
LD_LIBRARY_PATH=$lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH

mkdir "$work/program"
cp "$source/client/examples/hello_gemm.c" "$work/program"
cd "$work/program"
# A build with a sanitizer needs the sanitizer in the program as well.
flags=$(sed -n 's/^COMMGEMM_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
# shellcheck disable=SC2046,SC2086 # lists of words on purpose
cc -std=c11 -Wall -Wextra -Werror $flags hello_gemm.c -o by_pkgconfig \
    $(pkg-config --cflags --libs commgemm-client)

cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES C)
find_package(commgemm REQUIRED)
add_executable(by_cmake hello_gemm.c)
target_link_libraries(by_cmake PRIVATE commgemm::client)
CMAKE
cmake -S . -B out -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$flags"
cmake --build out

COMMGEMM_SOCKET=$work/commgemmd.sock
export COMMGEMM_SOCKET
"$prefix/sbin/commgemmd" --set backend=cpu 2>"$work/commgemmd.log" &
daemon=$!
tries=300
until "$prefix/bin/commgemmctl" status >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { cat "$work/commgemmd.log" >&2 && exit 1; }
    sleep 0.1
done
./by_pkgconfig
out/by_cmake
