#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh PROGRAM             run it; PROGRAM.passed or PROGRAM.failed says how it went
# run.sh --again FOLDER      run each program that failed there three times more, alone
#
# As tests/run.py does: a program that then passes each time is a flake, has a line in
# build/flakes.log, and the run is green. A crash, and all that a sanitizer reports, is
# none: the run ends at once. A program that hung counts as one that failed.

root=$(cd "$(dirname "$0")/../.." && pwd)
ledger=${TEST_RECORDS:-$root/build}/flakes.log
most=4 # failures; where there are more, something is broken
export ASAN_OPTIONS=handle_abort=1:$ASAN_OPTIONS
export TSAN_OPTIONS=die_after_fork=0:handle_abort=1:$TSAN_OPTIONS

# Its exit status; the output goes to PROGRAM.log first, as many run side by side.
run() {
    "$1" >"$1.log" 2>&1
    local status=$?
    cat "$1.log"
    return $status
}

is_crash() { # STATUS LOG
    [ "$1" -gt 128 ] && [ "$1" -ne $((128 + $(kill -l ALRM))) ] ||
        grep -qE '^crashed: |Sanitizer|runtime error:' "$2"
}

once() {
    rm -f "$1.passed" "$1.failed"
    run "$1"
    local status=$?
    [ $status -eq 0 ] && exec touch "$1.passed"
    is_crash $status "$1.log" && exit 1
    grep -m1 -E 'not so|^failed' "$1.log" >"$1.failed" || echo "status $status" >"$1.failed"
}

# Whether it passes alone, three times.
passes_again() {
    for time in 1 2 3; do
        run "$1" || return 1
    done
}

again() {
    local failed=("$1"/*.failed) name line broken=0
    [ -e "${failed[0]}" ] || exit 0
    [ ${#failed[@]} -le $most ] || exit 1
    for note in "${failed[@]}"; do
        name=tests/c/$(basename "${note%.failed}")" ($(basename "$1"))"
        echo "==== $name failed; alone, three times:"
        passes_again "${note%.failed}" || { broken=1; continue; }
        line=$(printf '%s\t' "$(date '+%F %T')" "$(git -C "$root" rev-parse --short HEAD)" \
            "load $(cut -d' ' -f1-3 /proc/loadavg)" "$name")$(cat "$note")
        echo "==== flakes: they failed once and passed alone"
        echo "$line$(grep -qsF "	$name	" "$ledger" && printf '\t(NOT THE FIRST TIME)')"
        mkdir -p "$(dirname "$ledger")"
        echo "$line" >>"$ledger"
        mv "$note" "${note%.failed}.passed"
    done
    exit $broken
}

case $1 in
--again) again "$2" ;;
*) once "$1" ;;
esac
