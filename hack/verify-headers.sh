#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails when a Go file or a script does not begin with the copyright and the license.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

printf x | grep -qP x || { echo "GNU grep with -P is needed" >&2; exit 1; }
header='^(#!.*\n|//go:build .*\n(// \+build .*\n)?\n|// Code generated .*\n\n)?(//|#) Copyright The Sandlot Authors\.\n(//|#) SPDX-License-Identifier: Apache-2\.0\n'
missing="$(git ls-files -z '*.go' '*.sh' .ci/run | xargs -0 grep -LPz "\A$header" || true)"
if [[ -n "$missing" ]]; then
  echo "these files do not begin as hack/boilerplate.go.txt says:" >&2
  echo "$missing" >&2
  exit 1
fi
