#!/bin/sh
# siege.sh BUILD [ROUNDS [SECONDS]]: how an honest client fares while another user does his worst to its
# daemon, on the CPU backend: ROUNDS (2) of SECONDS (1) of each attack, behind a time with nobody and
# one with a spinner; first with all processors for all, then, where there are four or more, with half
# of them for attackers and spinner alone. A round takes 54 s. From the source folder, with the
# executables of BUILD, which may come from another machine (preset gpu). What else runs on the machine
# counts less in a session of its own: setsid sh -c 'echo -20 >/proc/self/autogroup; sh ...'. Exit
# status 1 when a product was wrong or something died, 77 without root, for the attackers' uid.
set -u
build=$(cd "$1" && pwd) || exit 2
rounds=${2:-2}
seconds=${3:-1}
processors=$(nproc)
failed=0
# OpenBLAS and what it needs are looked for here too.
export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

[ "$(id -u)" -eq 0 ] || { echo "skipped: only root can become another uid" && exit 77; }

# siege WORDS OPTION...: the figures alone.
siege() {
    printf '\n%s: test_siege %s\n' "$1" "$(shift && echo "$*")"
    shift
    log=$(mktemp)
    "$build/bin/test_siege" "$@" >"$log" 2>&1 || failed=1
    sed -n '/^beside /,$p' "$log" | grep -v '^\[=='
    [ "$failed" -eq 0 ] || tail -n 30 "$log"
    rm -f "$log"
}

printf 'machine: %s, %s processors, %s\n' \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$processors" "$(uname -sr)"
printf 'date: %s, load before it: %s\n' "$(date -u '+%Y-%m-%d %H:%M')" "$(cut -d' ' -f1-3 /proc/loadavg)"
siege "all processors for all" -r "$rounds" "$seconds"
[ "$processors" -lt 4 ] ||
    siege "half of them for attackers and spinner" -r "$rounds" -p $((processors / 2)) "$seconds"
exit "$failed"
