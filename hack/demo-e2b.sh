#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Shows the E2B SDK on this machine: starts a server with the E2B API on a temporary folder
# and free ports, fills a pool, runs the npm SDK against it, and stops. Leaves nothing
# behind but the SDK, in _output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(mktemp -d)
log="$data/log"
server=
finish() {
  status=$?
  if [[ -n "$server" ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" || status=$?
  fi
  if [[ $status -ne 0 ]]; then
    echo "The demo failed. What the server said:" >&2
    grep -v E2B_API_KEY "$log" >&2 || true
  fi
  rm -rf "$data"
  exit "$status"
}
trap finish EXIT

sdk=$(hack/e2b-sdk.sh)
# The agent-runtime is for Linux.
sandboxes=simulated what='The sandboxes are simulated: no commands run.' runtimes=
if [[ $(uname) == Linux ]]; then
  sandboxes=processes what='Each sandbox is a process of this machine, with an agent-runtime.'
  runtimes='runtimes: [{name: agent-runtime}]'
fi
echo "Starting sandlot up --e2b-address. $what"
bin/sandlot up --sandboxes "$sandboxes" --data-dir "$data/data" --secure-port 0 --kubeconfig "$data/kubeconfig" --e2b-address 127.0.0.1:0 >"$log" 2>&1 &
server=$!
until grep -q '^ready$' "$log"; do
  kill -0 "$server" 2>/dev/null || exit 1
  sleep 0.1
done
# The lines that "sandlot up" prints for the SDK.
eval "$(grep '^export E2B_' "$log")"
bin/kubectl --kubeconfig "$data/kubeconfig" apply -f - <<YAML
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata:
  name: base
spec:
  replicas: 5
  $runtimes
  template:
    spec:
      containers:
      - name: main
        image: none # nothing is pulled
YAML
bin/kubectl --kubeconfig "$data/kubeconfig" wait sbs/base --for=jsonpath='{.status.availableReplicas}'=5 --timeout=2m >/dev/null
ln -s "$sdk/node_modules" "$data/node_modules"
cp hack/demo-e2b.mjs "$data/"
SANDBOXES=$sandboxes "$sdk/node" "$data/demo-e2b.mjs"
