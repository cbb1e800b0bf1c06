#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs go test through gotestsum, which runs each failed test once more, and runs a
# package once more whose tests did not all end, because its process died. What passes
# only then does not fail the run. It is listed, and it is a defect. With more than ten
# failures nothing is run again.
#
# usage: hack/gotest.sh 'PACKAGES' FLAGS...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages="${1:?usage: hack/gotest.sh 'PACKAGES' FLAGS...}"
shift
mkdir -p _output
dir="$(mktemp -d _output/gotest.XXXXXX)"
trap 'rm -rf "$dir"' EXIT

gotestsum="$(hack/tool.sh gotestsum)"
"$gotestsum" --format=standard-quiet --hide-summary=skipped --jsonfile="$dir/events" \
  --rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-run-root-test \
  --rerun-fails-report="$dir/reruns" --packages="$packages" -- "$@" | tee "$dir/output"

# gotestsum runs only tests again that failed. It does not know those that a dead process
# never began, and takes a package for good that failed without a failed test.
mapfile -t died < <(awk '
  function value(key,  at) {
    at = index($0, "\"" key "\":\"")
    return at ? substr($0, at + length(key) + 4, index(substr($0, at + length(key) + 4), "\"") - 1) : ""
  }
  # The text of a test is the last of the fields.
  { action = value("Action"); if (action == "output") next; package = value("Package"); test = value("Test") }
  test != "" && action == "run" { running[package]++ }
  test != "" && action ~ /^(pass|fail|skip)$/ { running[package]--; failed[package] += action == "fail" }
  test == "" && action ~ /^(pass|fail|skip)$/ {
    if (action == "fail" && (running[package] > 0 || !failed[package])) print package
    running[package] = failed[package] = 0
  }' "$dir/events" | sort -u)
if ((${#died[@]})); then
  go test "$@" "${died[@]}" | tee -a "$dir/output"
fi

if [[ -s "$dir/reruns" ]] || ((${#died[@]})); then
  echo "### Passed only when run again, each a defect:"
  cat "$dir/reruns"
  ((${#died[@]} == 0)) || printf '%s: not all of its tests ended\n' "${died[@]}"
fi
echo "### Tests of a minute or more"
"$gotestsum" tool slowest --threshold=1m --jsonfile="$dir/events"
echo "### Packages"
grep -E '^ok\s' "$dir/output" | grep -v 'no tests to run'
