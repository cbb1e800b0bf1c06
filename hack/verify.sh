#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every hack/verify-*.sh, all of them even when one fails, and then asks
# for a clean tree: what a check writes or leaves behind was missing from git.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
for script in hack/verify-*.sh; do
  echo "=== $script"
  start=$SECONDS
  "$script" || failed+=("$script")
  echo "--- $script: $((SECONDS - start)) s"
done

echo "=== clean tree"
# Untracked files count too: a generated file that was not added is a difference.
changes="$(git status --porcelain --untracked-files=all)"
if [[ -n "$changes" ]]; then
  echo "these differ from the commit:"
  echo "$changes"
  failed+=("clean tree")
fi

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "all verified"
