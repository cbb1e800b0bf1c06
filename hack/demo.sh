#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Shows the main job on this machine: builds sandlot, starts it on a temporary folder and
# a free port, fills a pool, claims one sandbox and a batch of ten, runs a command in one, and stops.
# Leaves nothing behind but the programs in bin/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CGO_ENABLED=0

# build builds a package, and says how far it is. What the compiler complains of is printed.
build() {
  go build -v -trimpath -o "$1" "$2" 2>&1 | awk '
    /^go: downloading / { if (++modules % 50 == 0) print "  " modules " modules downloaded"; fflush(); next }
    /^[^ :]+$/ { if (++packages % 200 == 0) print "  " packages " packages compiled"; fflush(); next }
    { print; fflush() }'
}

# The agent-runtime is for Linux.
sandboxes=simulated what='The sandboxes are simulated: no containers run.'
if [[ $(uname) == Linux ]]; then
  sandboxes=processes what='It runs a command in a sandbox, which is a process of this machine: no container runs.'
fi

cat <<WHAT
This demo builds sandlot, starts it on a temporary folder, fills a pool with twenty sandboxes,
claims one of them and then ten, and stops. $what

Building with $(go env GOVERSION). The first time this downloads Go modules and compiles some
1,500 packages, which takes about three minutes on two cores. Later it takes seconds.
WHAT
build bin/sandlot ./cmd/sandlot
build bin/example ./artifacts/example/go
if [[ $sandboxes == processes ]]; then
  build bin/sandlot-runtime ./cmd/sandlot-runtime
fi

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
    cat "$log" >&2
  fi
  rm -rf "$data"
  exit "$status"
}
trap finish EXIT

echo "Starting sandlot up: API server, embedded etcd and controllers in one process."
bin/sandlot up --sandboxes "$sandboxes" --data-dir "$data/data" --secure-port 0 --kubeconfig "$data/kubeconfig" >"$log" 2>&1 &
server=$!
until grep -q '^ready$' "$log"; do
  kill -0 "$server" 2>/dev/null || exit 1
  sleep 0.1
done
set=artifacts/example/sandboxset.yaml
if [[ $sandboxes == processes ]]; then
  # Commands run in sandboxes with an agent-runtime.
  sed 's/^  replicas: 20$/&\n  runtimes: [{name: agent-runtime}]/' "$set" >"$data/set.yaml"
  set="$data/set.yaml"
fi
bin/example --kubeconfig "$data/kubeconfig" --set "$set"
if [[ $sandboxes == processes ]]; then
  printf '\n$ sandlot claim python --exec -- sh -c %s\n' "'echo hello from \$PWD'"
  bin/sandlot claim python --kubeconfig "$data/kubeconfig" --exec -- sh -c 'echo hello from $PWD'
fi
