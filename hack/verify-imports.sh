#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Checks what packages import. Tests, and what only tests and tools use, may import anything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0 GOWORK="$PWD/go.work"

# A line is a rule for a package and those below it; the longest path applies. It has
#  - the packages of this repository that they may import, beside each other. Packages below
#    these are included;
#  - what must not come with them, through any number of packages: "client" is client-go and
#    controller-runtime, "runtime" is controller-runtime, "server" is k8s.io/apiserver, "serving" the
#    parts of it that serve an API. With ! they must not import it themselves.
rules='
# The API: nothing comes with it but the API machinery.
apis/agents: apis/internal apis/sandbox/v1alpha1 | client server etcd component-base
apis/extensions: apis/agents apis/internal apis/sandbox/v1alpha1 | client server etcd component-base
apis/internal: | client server etcd component-base
apis/sandbox/fuzzer: apis/agents apis/extensions apis/sandbox/v1alpha1 | client server etcd
apis/sandbox/install: apis/agents apis/extensions apis/sandbox/v1alpha1 | client server etcd
apis/sandbox/v1alpha1: | client server etcd component-base
apis/sandbox/validation: apis/sandbox/v1alpha1 | client server etcd !clock
pkg/client: apis/sandbox/v1alpha1 | runtime server etcd
pkg/generated: apis/agents apis/extensions apis/sandbox/v1alpha1 | server etcd

# Rules without I/O, that the API server and the controllers share.
pkg/claims: apis/agents apis/sandbox/v1alpha1 | client server etcd !log !clock
pkg/inplace: apis/sandbox/v1alpha1 pkg/podtemplate | client server etcd !log !clock
pkg/podtemplate: apis/sandbox/v1alpha1 apis/sandbox/validation | client server etcd !log !clock
pkg/poolindex: apis/sandbox/v1alpha1 pkg/claims | client server etcd
pkg/install/dryrunpolicy: | client server etcd
pkg/findings: | client server etcd

# Parts that know no sandboxes.
pkg/connections: pkg/fairness | client server etcd
pkg/datadir: | client server
pkg/fairness: | client server etcd
pkg/install/certificates: pkg/install/secrets | server etcd
pkg/install/encryptionkeys: pkg/install/secrets | server etcd
pkg/install/secrets: | server etcd
pkg/localpki: | server
pkg/memory: | client server
pkg/monitoring: pkg/connections | server etcd
pkg/nodes: | runtime server etcd
pkg/podnamespace: | client server etcd
pkg/runtime: pkg/fairness | runtime server
pkg/runtimeserver: pkg/connections pkg/fairness pkg/version | client server etcd component-base
pkg/sandboxprocess: | client server etcd component-base
pkg/store/embeddedetcd: pkg/datadir | client server
pkg/store/etcdtxn:
pkg/store/format:
pkg/store/revisioncache: pkg/store/watchcache
pkg/store/rewriting:
pkg/store/watchcache: pkg/memory
pkg/tokens: pkg/fairness | runtime serving etcd
pkg/version: | client server

# The API server.
pkg/podaddress: apis/sandbox/v1alpha1 pkg/fairness | runtime server etcd
pkg/sandboxproxy: apis/sandbox/v1alpha1 | client server etcd
pkg/allocator: apis/sandbox/v1alpha1 apis/sandbox/validation pkg/claims pkg/fairness pkg/podtemplate pkg/poolindex pkg/store/etcdtxn
pkg/allocator/candidates: apis/sandbox/v1alpha1 apis/sandbox/validation pkg/allocator/plan pkg/allocator/queue pkg/claims pkg/inplace pkg/podtemplate pkg/poolindex pkg/store/etcdtxn
pkg/allocator/metadatasync: apis/sandbox/v1alpha1 pkg/allocator/candidates pkg/allocator/metrics pkg/allocator/plan pkg/allocator/reconciler pkg/allocator/storage pkg/allocator/throttles pkg/claims pkg/poolindex pkg/store/etcdtxn
pkg/allocator/metrics: apis/sandbox/v1alpha1 pkg/allocator/plan pkg/allocator/queue pkg/claims pkg/poolindex pkg/store/etcdtxn
pkg/allocator/plan: apis/sandbox/v1alpha1 pkg/claims pkg/inplace pkg/podtemplate | !io !log !clock
pkg/allocator/queue: pkg/poolindex
pkg/allocator/rebind: apis/sandbox/v1alpha1 pkg/allocator/plan pkg/allocator/reconciler pkg/allocator/storage pkg/claims pkg/poolindex
pkg/allocator/reconciler: pkg/fairness | runtime server etcd
pkg/allocator/runtimesetup: apis/sandbox/v1alpha1 pkg/allocator/metrics pkg/allocator/plan pkg/allocator/reconciler pkg/claims pkg/fairness
pkg/allocator/shortfall: apis/sandbox/v1alpha1
pkg/allocator/storage: apis/sandbox/v1alpha1 pkg/allocator/candidates pkg/allocator/metrics pkg/allocator/reconciler pkg/store/etcdtxn
pkg/allocator/throttles: | runtime server etcd
registry/sandbox: apis/sandbox/v1alpha1 apis/sandbox/validation pkg/allocator pkg/claims pkg/fairness pkg/podaddress pkg/podtemplate pkg/sandboxproxy pkg/store/revisioncache | !etcd
registry/agentsandbox: apis/agents apis/extensions apis/sandbox/v1alpha1 pkg/podtemplate registry/sandbox | !etcd
pkg/apiserver: apis/agents apis/extensions apis/sandbox pkg/allocator pkg/claims pkg/fairness pkg/generated pkg/install/dryrunpolicy pkg/localpki pkg/memory pkg/nodes pkg/podaddress pkg/podnamespace pkg/podtemplate pkg/poolindex pkg/runtime pkg/store pkg/tokens pkg/version registry
pkg/apiserver/drain: | client server etcd
pkg/apiserver/limits: apis/sandbox/v1alpha1 pkg/apiserver/scheme pkg/connections pkg/fairness pkg/memory registry/agentsandbox registry/sandbox/base registry/sandbox/sandboxclaim | runtime
pkg/apiserver/scheme: apis/sandbox/install registry/sandbox/sandboxset | runtime
pkg/store/reencryption: pkg/apiserver/storekeys pkg/store/rewriting
pkg/store/snapshot:

# What reads a store.
pkg/backup: apis/sandbox/v1alpha1 pkg/findings pkg/memory pkg/store pkg/storecheck pkg/version | runtime
pkg/storecheck: apis/sandbox/v1alpha1 pkg/apiserver pkg/findings pkg/store
pkg/storecheck/invariants: apis/sandbox/v1alpha1 pkg/allocator/plan pkg/claims pkg/findings | client server etcd !clock

# Clients of the API.
pkg/controllers: apis/agents apis/sandbox/v1alpha1 apis/sandbox/validation pkg/claims pkg/fairness pkg/inplace pkg/nodes pkg/podtemplate | server etcd
pkg/manager: apis/sandbox/v1alpha1 pkg/controllers pkg/install pkg/monitoring pkg/podnamespace pkg/tokens pkg/version | serving etcd
pkg/check: apis/sandbox/v1alpha1 pkg/findings pkg/install/dryrunpolicy | runtime server etcd
pkg/cli: apis/sandbox/v1alpha1 pkg/check pkg/client pkg/findings pkg/gateway/apikeys pkg/runtimeserver/processpb pkg/version | runtime server etcd
pkg/gateway: apis/sandbox/v1alpha1 pkg/client pkg/connections pkg/fairness pkg/podaddress pkg/sandboxproxy | runtime server etcd
pkg/gateway/app: pkg/gateway pkg/monitoring pkg/tokens pkg/version | serving etcd

# Programs: each has one package that puts it together.
pkg/standalone: pkg/apiserver pkg/backup/app pkg/cli pkg/controllers/sandbox/simulated pkg/datadir pkg/findings pkg/gateway pkg/localpki pkg/manager pkg/memory pkg/sandboxprocess pkg/store/embeddedetcd pkg/storecheck pkg/version
cmd/kubectl-sandlot: pkg/cli | runtime server etcd
cmd/sandlot: pkg/cli pkg/standalone
cmd/sandlot-apiserver: pkg/apiserver/app pkg/memory
cmd/sandlot-controller-manager: pkg/manager pkg/memory | serving etcd
cmd/sandlot-gateway: pkg/gateway/app pkg/memory | serving etcd
cmd/sandlot-runtime: pkg/runtimeserver/app | client server etcd component-base
'

# A line for each package: its path, its imports, and behind a bar all that it depends on.
module=github.com/sandlot-io/sandlot
tests='artifacts|hack|pkg/(e2e|integration|testutil)|registry/sandbox/registrytest'
go list -f '{{.ImportPath}} {{join .Imports " "}} | {{join .Deps " "}}' ./... ./apis/... ./pkg/client/... |
  sed -E "s,(^| )$module/,\1,g; \,^($tests)[/ ],d" | RULES="$rules" awk '
function is_below(path, folder) { return path == folder || index(path, folder "/") == 1 }
function report(text) { print text > "/dev/stderr"; failed = 1 }

BEGIN {
  library["client"] = "k8s[.]io/client-go|sigs[.]k8s[.]io/controller-runtime"
  library["runtime"] = "sigs[.]k8s[.]io/controller-runtime"
  library["server"] = "k8s[.]io/apiserver"
  library["serving"] = "k8s[.]io/apiserver/pkg/(admission|registry|storage|server/(filters|healthz|options|routes|storage))"
  library["component-base"] = "k8s[.]io/component-base"
  library["clock"] = "k8s[.]io/utils/clock"
  library["log"] = "log|k8s[.]io/klog|github[.]com/go-logr"
  library["io"] = "context|io|net|os|sync"
  # rpctypes has the errors of etcd.
  library["etcd"] = "go[.]etcd[.]io/etcd/(client|server|raft|pkg)"
  count = split(ENVIRON["RULES"], lines, "\n")
  for (l = 1; l <= count; l++) {
    if (lines[l] ~ /^(#|$)/) continue
    colon = index(lines[l], ":")
    folder = substr(lines[l], 1, colon - 1)
    split(substr(lines[l], colon + 1), parts, "|")
    allowed[folder] = parts[1]
    forbidden[folder] = parts[2]
  }
}

{
  package = $1
  rule = package
  while (!(rule in allowed)) if (!sub("/[^/]*$", "", rule)) {
    report("no rule for " package ": add one to hack/verify-imports.sh")
    next
  }
  used[rule] = 1
  folders = split(allowed[rule], own, " ")
  libraries = split(forbidden[rule], names, " ")
  direct = 1
  for (i = 2; i <= NF; i++) {
    if ($i == "|") { direct = 0; continue }
    if (direct && $i ~ "^(apis|artifacts|cmd|hack|pkg|registry)/" && !is_below($i, rule)) {
      good = 0
      for (f = 1; f <= folders; f++) if (is_below($i, own[f])) good = used[rule, own[f]] = 1
      if (!good) report("forbidden import: " package " -> " $i)
    }
    for (n = 1; n <= libraries; n++) {
      name = names[n]
      if (sub("^!", "", name) != direct) continue
      if (!(name in library)) report("unknown word in the rule for " rule ": " name)
      if ($i ~ "^(" library[name] ")(/|$)") report("forbidden dependency: " package " -> " $i)
    }
  }
}

END {
  for (rule in allowed) {
    if (!(rule in used)) report("rule for no package: " rule)
    folders = split(allowed[rule], own, " ")
    for (f = 1; f <= folders; f++)
      if (!((rule, own[f]) in used)) report("rule that nothing needs: " rule " -> " own[f])
  }
  exit failed
}'
