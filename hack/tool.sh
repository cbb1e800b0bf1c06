#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the path of a tool in bin/, building it first when it is missing or
# older than the go.mod that pins it. Nothing is taken from PATH, so that
# everyone runs the same version. The tools are installed rather than run by
# "go tool", because checking a build of this size takes seconds each time.
#
# usage: hack/tool.sh NAME, with a name from the list below. With KUBERNETES=1.36
# the programs of Kubernetes are those of that minor, in bin/1.36: there is one for
# each folder of hack/controlplane.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
name="${1:?usage: hack/tool.sh NAME}"
bin="$root/bin"
ldflags='-s -w'
tags=
case "$name" in
golangci-lint)
  module=hack/tools/lint
  package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
  ;;
gotestsum)
  module=hack/tools/gotestsum
  package=gotest.tools/gotestsum
  ;;
vale)
  module=hack/tools/prose
  package=github.com/errata-ai/vale/v2/cmd/vale
  ;;
kube-apiserver | kube-controller-manager | kube-scheduler | kubectl | kubelet)
  module="hack/controlplane${KUBERNETES:+/$KUBERNETES}"
  bin+="${KUBERNETES:+/$KUBERNETES}"
  package="k8s.io/kubernetes/cmd/$name"
  if [[ ! -f "$root/$module/go.mod" ]]; then
    echo "hack/tool.sh: KUBERNETES=$KUBERNETES has no folder in hack/controlplane" >&2
    exit 2
  fi
  ;;
kwok)
  module=hack/kwok
  package=sigs.k8s.io/kwok/cmd/kwok
  ;;
etcd)
  module=hack/etcd
  package=go.etcd.io/etcd/server/v3
  ;;
etcdctl | etcdutl)
  module=hack/etcd
  package="go.etcd.io/etcd/$name/v3"
  ;;
versitygw)
  module=hack/versitygw
  package=github.com/versity/versitygw/cmd/versitygw
  ;;
containerd | containerd-shim-runc-v2 | ctr)
  module=hack/containerd
  package="github.com/containerd/containerd/v2/cmd/$name"
  # Drivers of file systems that no test has.
  tags=no_btrfs,no_devmapper,no_zfs
  ;;
kube-network-policies)
  module=hack/networkpolicies
  package=sigs.k8s.io/kube-network-policies/cmd
  ;;
helm)
  module=hack/helm
  package=helm.sh/helm/v4/cmd/helm
  ;;
promcheck)
  module=hack/promcheck
  package=.
  ;;
*)
  echo "hack/tool.sh: unknown tool $name" >&2
  exit 2
  ;;
esac

binary="$bin/$name"
cd "$root/$module"
if [[ ! -x "$binary" || go.mod -nt "$binary" || go.sum -nt "$binary" || -n "$(find . -name '*.go' -newer "$binary")" ]]; then
  echo "building ${binary#"$root"/} (minutes on a cold cache)" >&2
  export CGO_ENABLED=0 GOWORK=off
  if [[ "$module" == hack/controlplane* ]]; then
    # Kubernetes' own build stamps this; without it kubectl calls itself v0.0.0.
    version="$(go list -m -f '{{.Version}}' k8s.io/kubernetes)"
    ldflags+=" -X k8s.io/component-base/version.gitVersion=$version"
  fi
  mkdir -p "$bin"
  # Renamed into place: a caller beside us never sees half a file.
  # Without paths, etcd shares what is compiled with its image.
  go build -trimpath -tags "$tags" -o "$binary.$$" -ldflags "$ldflags" "$package"
  mv "$binary.$$" "$binary"
fi
echo "$binary"
