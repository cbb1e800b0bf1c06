#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails when what is generated is not what hack/update-codegen.sh would write. It
# generates in a copy, so the working tree stays as it is.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
GENERATED=(apis pkg/generated pkg/client pkg/runtimeserver artifacts/schema artifacts/deploy hack/api-violations.list)
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT

cd "$ROOT"
mkdir "$copy/artifacts" "$copy/pkg"
cp -R go.mod go.sum apis hack "$copy/"
cp -R artifacts/dashboard artifacts/deploy "$copy/artifacts/"
cp -R pkg/generated pkg/client pkg/runtimeserver "$copy/pkg/"

helm="$(hack/tool.sh helm)"
CODEGEN_BIN="$ROOT/bin" HELM="$helm" "$copy/hack/update-codegen.sh"

same=true
for path in "${GENERATED[@]}"; do
    diff -Naur "$path" "$copy/$path" || same=false
done
if [[ "$same" != true ]]; then
    echo "Generated files are out of date: run hack/update-codegen.sh." >&2
    exit 1
fi
