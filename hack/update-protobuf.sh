#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes what is generated from the .proto files of pkg/runtimeserver. Needs Go
# and nothing else.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$ROOT"

# As in hack/update-codegen.sh. Another folder would be another cache of what go
# installs.
export GOWORK=off CGO_ENABLED=0
export GOBIN="${CODEGEN_BIN:-$ROOT/bin}"

(cd hack/tools/protobuf && go install -trimpath . tool)
mapfile -t files < <(find pkg/runtimeserver -name '*.proto' | LC_ALL=C sort)
"$GOBIN/protobuf" "$ROOT" "${files[@]}"
