#!/bin/sh
# enter HOST PROGRAM [ARGUMENT...] becomes the program, on that host, in the same folder.
pid=$(cat "${0%/*}/$1") || exit 255
shift
exec nsenter --target "$pid" --net --uts --ipc --mount --wdns="$PWD" -- "$@"
