#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Says what to try and becomes a server that stays up until it is stopped. Its
# data is kept under _output/, so that the next run continues from there.
# Arguments are flags of sandlot up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kubeconfig="$PWD/_output/run.kubeconfig"
mkdir -p _output
cat <<TRY
In another terminal, once the server says that it is ready:

  export KUBECONFIG=$kubeconfig
  bin/kubectl apply -f artifacts/example/
  bin/kubectl wait --timeout=5m --for=jsonpath={.status.availableReplicas}=20 sandboxset/python
  bin/kubectl get sandboxsets,sandboxes
  bin/kubectl create -f artifacts/example/claims/one.yaml
  bin/kubectl get sandboxclaims,sandboxes -o wide
  bin/kubectl wait --timeout=5m --for=condition=Ready sandboxclaims --all

TRY
exec bin/sandlot up --data-dir "$PWD/_output/run" --kubeconfig "$kubeconfig" "$@"
