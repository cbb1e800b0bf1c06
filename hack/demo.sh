#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Shows the main job on this machine: builds sandlot, starts it on a temporary folder and
# a free port, fills a pool, claims one sandbox and a batch of ten, and stops.
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

cat <<WHAT
This demo builds sandlot, starts it on a temporary folder, fills a pool with twenty sandboxes,
claims one of them and then ten, and stops. The sandboxes are simulated: no containers run.

Building with $(go env GOVERSION). The first time this downloads Go modules and compiles some
1,500 packages, which takes about three minutes on two cores. Later it takes seconds.
WHAT
build bin/sandlot ./cmd/sandlot
build bin/example ./artifacts/example/go

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
bin/sandlot up --data-dir "$data/data" --secure-port 0 --kubeconfig "$data/kubeconfig" >"$log" 2>&1 &
server=$!
until grep -q '^ready$' "$log"; do
  kill -0 "$server" 2>/dev/null || exit 1
  sleep 0.1
done
bin/example --kubeconfig "$data/kubeconfig"
