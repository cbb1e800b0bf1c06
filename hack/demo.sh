#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Shows the main job on this machine: starts a server on a temporary folder and
# a free port, fills a pool, claims one sandbox and a batch of ten, and stops.
# Leaves nothing behind.
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
    cat "$log" >&2
  fi
  rm -rf "$data"
  exit "$status"
}
trap finish EXIT

echo "Starting sandlot up (API server, embedded etcd, controllers; sandboxes are simulated) ..."
bin/sandlot up --data-dir "$data/data" --secure-port 0 --kubeconfig "$data/kubeconfig" >"$log" 2>&1 &
server=$!
until grep -q '^ready$' "$log"; do
  kill -0 "$server" 2>/dev/null || exit 1
  sleep 0.1
done
bin/example --kubeconfig "$data/kubeconfig"
