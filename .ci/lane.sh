#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run one lane with a hard cap and note how it went: NAME SECONDS COMMAND...
set -u
name=$1 cap=$2
shift 2
mkdir -p build/skips
rm -rf "build/skips/$name" build/skips/"$name"-rank* build/skips/"$name"-n[0-9]*
export HIXL_RMA_TEST_LANE="$name" HIXL_RMA_TEST_SKIP_LEDGER="$PWD/build/skips"
echo "==== $name"
# On a terminal the lane stays in its foreground group, so that Ctrl-C reaches it.
foreground=
[ -t 0 ] && foreground=--foreground
start=$(date +%s)
timeout ${foreground:+"$foreground"} --kill-after=20 "$cap" "$@"
status=$?
took=$(($(date +%s) - start))
case $status in
0) word=passed ;;
124 | 137) word="FAILED: not finished after $cap s" ;;
*) word="FAILED: exit status $status" ;;
esac
printf '%-18s %5d s  %s\n' "$name" "$took" "$word" >>build/lanes.txt
[ "$status" = 0 ] || echo "==== $name $word" >&2
exit "$status"
