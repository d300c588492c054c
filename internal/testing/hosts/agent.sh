#!/bin/sh
# agent [-OPTION...] HOST COMMAND... takes the place of ssh: it runs the command by a shell on that host, in the home folder and
# without the variables of its caller, so that a test sees what a real cluster would lack.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
cd
exec env -i HOME="$HOME" PATH="$PATH" "${0%/*}/enter" "$host" sh -c "$*"
