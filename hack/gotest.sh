#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs go test through gotestsum, which runs each failed test once more. A test
# that passes only then does not fail the run. It is listed, and it is a defect.
# With more than five failures nothing is run again.
#
# usage: hack/gotest.sh 'PACKAGES' FLAGS...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages="${1:?usage: hack/gotest.sh 'PACKAGES' FLAGS...}"
shift
mkdir -p _output
report="$(mktemp _output/reruns.XXXXXX)"
output="$(mktemp _output/gotest.XXXXXX)"
trap 'rm -f "$report" "$output"' EXIT

gotestsum="$(hack/tool.sh gotestsum)"
"$gotestsum" --format=standard-quiet --hide-summary=skipped \
  --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test \
  --rerun-fails-report="$report" --packages="$packages" -- "$@" | tee "$output"

if [[ -s "$report" ]]; then
  echo "### Passed only when run again, each a defect:"
  cat "$report"
fi
echo "### Packages"
grep -E '^ok\s' "$output"
