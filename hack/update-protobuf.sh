#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes what is generated from the .proto files of pkg/runtimeserver. Needs Go
# and protoc (protobuf-compiler of Debian).

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$ROOT"

# As in hack/update-codegen.sh. Another folder would be another cache of what go
# installs.
export GOWORK=off CGO_ENABLED=0
export GOBIN="${CODEGEN_BIN:-$ROOT/bin}"

# The plugins are of the version of the libraries.
go install -trimpath connectrpc.com/connect/cmd/protoc-gen-connect-go google.golang.org/protobuf/cmd/protoc-gen-go
mapfile -t files < <(find pkg/runtimeserver -name '*.proto' | LC_ALL=C sort)
PATH="$GOBIN:$PATH" protoc --proto_path=. --go_out=. --go_opt=paths=source_relative \
    --connect-go_out=. --connect-go_opt=paths=source_relative "${files[@]}"
# Any protoc does: what it wrote does not say which.
for file in "${files[@]}"; do
    sed -E 's#^(//[[:blank:]]+protoc[[:blank:]]+)v.*#\1(unknown)#' "${file%.proto}.pb.go" > "$file.new"
    mv "$file.new" "${file%.proto}.pb.go"
done
