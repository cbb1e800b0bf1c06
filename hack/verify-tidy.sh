#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails when go mod tidy would change the go.mod or go.sum of any module here:
# an untidy one breaks or changes a build later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOWORK=off
failed=0
while read -r file; do
  echo "go mod tidy -diff in $(dirname "$file")"
  (cd "$(dirname "$file")" && go mod tidy -diff) || failed=1
done < <(find . -name go.mod -not -path './bin/*' -not -path './_output/*' | sort)
exit "$failed"
