#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the pinned golangci-lint with .golangci.yml; arguments are passed on
# (packages, --fix). Without cgo and paths its type check reuses what make build
# compiled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOWORK="$PWD/go.work" GOFLAGS="${GOFLAGS:-} -trimpath"
linter="$(hack/tool.sh golangci-lint)"
"$linter" config verify
(($#)) || set -- ./... ./apis/... ./pkg/client/...
"$linter" run "$@"
