#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Holds the layers apart: who may not depend on whom, through any number of
# packages. The linter (depguard in .golangci.yml) judges what a file imports
# itself; only the whole graph shows what a package drags in behind that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOWORK="$PWD/go.work"
module=github.com/sandlot-io/sandlot
patterns=(./... ./apis/... ./pkg/client/...)
packages="$(go list "${patterns[@]}" | sed "s,^$module/,,")"
tests='pkg/(e2e|integration|testutil)|registry/sandbox/registrytest'

# A line for each pair "package dependency", direct or not, without _test.go
# files. Our own packages lose the module's path, so that pkg/x is always ours.
# Left out: pairs within one folder of pkg/, and what test packages depend on.
graph="$(go list -f '{{range .Deps}}{{$.ImportPath}} {{.}}{{"\n"}}{{end}}' "${patterns[@]}" |
  sed -E "s,^$module/,,; s, $module/, ,; \,^($tests)[/ ],d"'; \,^(pkg/[^ /]+)(/[^ ]*)? \1(/[^ ]*)?$,d')"
failed=0

# never PACKAGE DEPENDENCY: extended regular expressions for whole paths; each
# stands for what lies below it as well.
never() {
  local found
  found="$(grep -E "^($1)(/[^ ]*)? ($2)(/[^ ]*)?$" <<<"$graph")" || (($? == 1))
  if [[ -n "$found" ]]; then
    sed 's/^/forbidden dependency: /; s/ \([^ ]*\)$/ -> \1/; 20q' <<<"$found" >&2
    failed=1
  fi
}

clients='k8s\.io/client-go|sigs\.k8s\.io/controller-runtime'
server='k8s\.io/apiserver'
serving='k8s\.io/apiserver/pkg/(admission|registry|storage|server/(filters|healthz|options|routes|storage))'
etcd='go\.etcd\.io/etcd'
install='apis/sandbox/install'
parts='pkg/(datadir|store/embeddedetcd|localpki)'
edge="cmd|hack|artifacts|$parts|pkg/(apiserver|backup|install/certificates|check|cli|controllers|install/encryptionkeys|install/secrets|manager|standalone)"
product="apis|cmd/[^/]+|registry/(agentsandbox|sandbox)|$parts"
product+='|pkg/(allocator|apiserver|backup|install/certificates|check|claims|cli|client|controllers|install/dryrunpolicy|install/encryptionkeys|store|findings|gateway|generated|inplace|install/secrets|manager|memory|nodes|podaddress|podnamespace|podtemplate|poolindex|sandboxproxy|runtime|fairness|standalone|storecheck|tokens|version)'

# The API is what others import: nothing comes with it but the API machinery.
never 'apis/sandbox/v1alpha1' "apis|pkg|registry|$clients|$server|$etcd|k8s\.io/component-base"
never 'apis/(agents|extensions|internal)' "apis/sandbox/(fuzzer|install|validation)|pkg|registry|$clients|$server|$etcd|k8s\.io/component-base"
never 'apis/sandbox/(fuzzer|install|validation)' "pkg|registry|$clients|$server|$etcd"
# Clients are a module that others import: the API, and what talks to it.
never 'pkg/client' "cmd|hack|artifacts|registry|$install|pkg|$server|$etcd|sigs\.k8s\.io/controller-runtime"
# Pure cores: nothing behind them does I/O.
never 'pkg/(claims|inplace|podtemplate|poolindex)' "$edge|registry|$install|pkg/(allocator|client|store/etcdtxn|generated|runtime)|$clients|$server|$etcd"
# So is what judges a store; what reads it is of the server's side, and knows no cluster.
never 'pkg/findings' "apis|pkg|registry|$clients|$server|$etcd"
never 'pkg/storecheck/invariants' "$edge|registry|$install|pkg/(client|store/etcdtxn|generated|runtime)|$clients|$server|$etcd"
never 'pkg/storecheck' 'cmd|hack|pkg/(install/certificates|check|cli|controllers|manager|standalone)'
# Tools and parts that know nothing of sandboxes.
never 'pkg/(store/etcdtxn|memory|store/revisioncache|fairness)|pkg/store/format' 'apis|pkg|registry'
never 'pkg/(install/certificates|install/encryptionkeys)' "apis|cmd|registry|$parts|pkg/(allocator|apiserver|install/certificates|claims|cli|client|controllers|install/encryptionkeys|store/etcdtxn|gateway|generated|inplace|manager|memory|podtemplate|poolindex|store/revisioncache|sandboxproxy|runtime|fairness|standalone|version)|$server|$etcd"
never 'pkg/install/secrets' "apis|pkg|registry|$server|$etcd"
never 'pkg/podnamespace' "apis|pkg|registry|$clients|$server|$etcd"
never 'pkg/install/dryrunpolicy' "apis|pkg|registry|$clients|$server|$etcd"
never 'pkg/nodes' "apis|pkg|registry|$server|$etcd|sigs\.k8s\.io/controller-runtime"
never 'pkg/tokens' "$edge|apis|registry|pkg/(allocator|claims|client|install/dryrunpolicy|e2e|store/etcdtxn|findings|gateway|generated|inplace|integration|memory|nodes|podaddress|podtemplate|poolindex|store/revisioncache|sandboxproxy|runtime|storecheck|testutil|version)|$serving|$etcd|sigs\.k8s\.io/controller-runtime"
never 'pkg/podaddress' "apis/sandbox/(install|validation)|pkg|registry|$server|$etcd|sigs\.k8s\.io/controller-runtime"
never 'pkg/sandboxproxy' "apis|pkg|registry|$clients|$server|$etcd"
never 'pkg/runtime' "apis|registry|pkg/(allocator|apiserver|backup|install/certificates|check|claims|cli|client|controllers|install/dryrunpolicy|install/encryptionkeys|store/etcdtxn|findings|gateway|generated|inplace|install/secrets|manager|memory|nodes|podaddress|podtemplate|poolindex|store/revisioncache|sandboxproxy|standalone|storecheck|tokens|version)|$server|sigs\.k8s\.io/controller-runtime"
never "$parts|pkg/version" 'apis|registry|pkg/(allocator|apiserver|claims|client|controllers|store/etcdtxn|generated|inplace|manager|podtemplate|poolindex|runtime|standalone)'
# The way of a request. Only the server sees the second registration of the types.
never 'pkg/allocator|registry' "$edge|$install"
never 'pkg/allocator' 'registry'
never 'pkg/apiserver|pkg/store/(reencryption|snapshot)' 'cmd|hack|pkg/(install/certificates|cli|controllers|install/encryptionkeys|install/secrets|manager|standalone)'
# The background is a client of the API like any other. Who asks for its metrics is found
# out by parts of the library of servers, which are not those that serve an API.
never 'pkg/(controllers|manager)|cmd/sandlot-controller-manager' \
  "hack|registry|$install|$parts|pkg/(allocator|apiserver|store/etcdtxn|poolindex|store/revisioncache|standalone)|$serving|$etcd"
never 'pkg/controllers' "$server"
never 'pkg/check|pkg/cli|cmd/kubectl-sandlot' \
  "hack|registry|$install|$parts|pkg/(allocator|apiserver|install/certificates|claims|controllers|store/etcdtxn|inplace|manager|podtemplate|poolindex|store/revisioncache|runtime|standalone|storecheck)|$server|$etcd|sigs\.k8s\.io/controller-runtime"
never 'pkg/gateway' \
  "cmd|hack|registry|$install|$parts|pkg/(allocator|apiserver|install/certificates|claims|cli|controllers|store/etcdtxn|inplace|manager|podtemplate|poolindex|store/revisioncache|runtime|standalone)|$serving|$etcd"
# The program alone takes what reads its certificate again, and asks who may read metrics.
never 'pkg/gateway/(e2b|flight|identity|apikeys|lookups|mapping|proxy|routes|server)' "sigs\.k8s\.io/controller-runtime|$server"
# Backups know the store and the cluster, and nothing that allocates or reconciles.
never 'pkg/backup' "cmd|hack|pkg/(cli|controllers|manager|standalone)|sigs\.k8s\.io/controller-runtime"
never 'pkg/generated' "$edge|registry|$install|pkg/(allocator|store/etcdtxn|inplace|podtemplate|poolindex|runtime)|$server|$etcd"
# What others import beside the API.
never 'pkg/client' "$edge|registry|$install|apis/sandbox/validation|pkg/(allocator|claims|store/etcdtxn|inplace|podtemplate|poolindex|store/revisioncache|runtime)|$server|$etcd|sigs\.k8s\.io/controller-runtime"
# Tests and tools stay out of what is shipped.
never "$product" "hack|artifacts|$tests"

# A package that no line above knows is an oversight: give it its place.
if unknown="$(grep -Ev "^($product|$tests|artifacts/(deploy|example)|hack)(/|$)" <<<"$packages")"; then
  sed 's/^/no import rule for /' <<<"$unknown" >&2
  failed=1
fi
exit "$failed"
