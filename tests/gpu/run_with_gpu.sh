#!/bin/sh
# Runs a test program where there is a GPU; else says so and exits with 77.
if ! [ -e /dev/nvidiactl ]; then
    echo "skipped: this machine has no NVIDIA GPU (/dev/nvidiactl)"
    exit 77
fi
exec "$@"
