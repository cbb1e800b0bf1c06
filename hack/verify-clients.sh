#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Holds what the modules apis and pkg/client promise those who import them: that
# neither servers nor etcd nor controller-runtime come with them, and that they
# build and pass their tests with several minors of Kubernetes' libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# From the oldest, which both modules require, to the one that the root requires.
kubernetes=(v0.35.10 v0.36.6 v0.37.2)
modules=(apis pkg/client)

export CGO_ENABLED=0 GOWORK=off GOFLAGS="${GOFLAGS:-}"
root="$PWD"
temp="$(mktemp -d)"
trap 'rm -rf "$temp"' EXIT
failed=0

fail() {
  echo "$@" >&2
  failed=1
}

# required FOLDER MODULE: the version that a go.mod requires, or nothing.
required() {
  awk -v module="$2" '$1 == "require" { $1 = ""; $0 = $0 } $1 == module && $2 != "=>" { print $2 }' "$1/go.mod"
}

# light FOLDER: no module in its graph, and no package that it builds from, is one
# of those that clients must not bring.
light() {
  local heavy='k8s\.io/apiserver|go\.etcd\.io/.*|sigs\.k8s\.io/controller-runtime|github\.com/sandlot-io/sandlot'
  local found modules packages
  modules="$(cd "$1" && go list -m all && go mod graph | tr ' ' '\n')" || fail "cannot list the modules of $1"
  packages="$(cd "$1" && go list -deps -test ./...)" || fail "cannot list the packages of $1"
  found="$(grep -E "^($heavy)([ @]|$)" <<<"$modules" | sort -u)" && fail "the modules of $1 include" $found
  found="$(grep -E "^($heavy)(/|$)" <<<"$packages" | grep -Ev '^github\.com/sandlot-io/sandlot/(apis|pkg/client|hack/clientmodule)(/|\.test| |$)')" &&
    fail "the packages of $1 include" $found
  return 0
}

# One set of versions everywhere.
for module in "${modules[@]}" hack/clientmodule; do
  for library in api apimachinery client-go; do
    version="$(required "$module" "k8s.io/$library")"
    [[ -z "$version" || "$version" == "${kubernetes[0]}" ]] ||
      fail "$module/go.mod requires k8s.io/$library $version, not ${kubernetes[0]}: that is forced on all who import it"
  done
done
[[ "$(required . k8s.io/client-go)" == "${kubernetes[-1]}" ]] || fail "hack/verify-clients.sh does not end with the client-go of go.mod"
[[ "$(required hack/tools/clients k8s.io/code-generator)" == "${kubernetes[0]}" ]] ||
  fail "hack/tools/clients/go.mod does not have the generators of ${kubernetes[0]}"
# They are released together.
versions="$(for folder in . pkg/client; do required "$folder" github.com/sandlot-io/sandlot/apis; done
  required . github.com/sandlot-io/sandlot/pkg/client)"
[[ "$(sort -u <<<"$versions" | wc -l)" == 1 ]] || fail "the modules require different versions of each other:" $versions

for module in "${modules[@]}" hack/clientmodule; do
  light "$module"
done

# What is built of another repository, outside of this one.
cp -R hack/clientmodule "$temp/"
(
  cd "$temp/clientmodule"
  go mod edit -replace "github.com/sandlot-io/sandlot/apis=$root/apis" -replace "github.com/sandlot-io/sandlot/pkg/client=$root/pkg/client"
  go run .
) || fail "another module cannot use pkg/client"

# The newest is what the tests of the whole repository use, so the short form is about the
# oldest; SANDLOT_TEST_LONG=1 is for all.
tested=("${kubernetes[0]}")
[[ -z "${SANDLOT_TEST_LONG:-}" ]] || tested=("${kubernetes[@]}")
for version in "${tested[@]}"; do
  for module in "${modules[@]}"; do
    echo "$module with k8s.io/client-go $version"
    modfile="$temp/${module//\//-}-$version.mod"
    cp "$module/go.mod" "$modfile"
    cp "$module/go.sum" "${modfile%.mod}.sum"
    (
      cd "$module"
      export GOFLAGS="$GOFLAGS -mod=mod -modfile=$modfile"
      libraries=("k8s.io/api@$version" "k8s.io/apimachinery@$version")
      [[ "$module" == apis ]] || libraries+=("k8s.io/client-go@$version")
      # Within "( ) ||" the shell does not stop at errors by itself.
      go get "${libraries[@]}" &&
        [[ "$(go list -m -f '{{.Version}}' k8s.io/apimachinery)" == "$version" ]] &&
        go vet ./... &&
        go test ./... | { grep -v 'no test files' || true; }
    ) || fail "$module does not work with k8s.io/client-go $version"
  done
done
exit "$failed"
