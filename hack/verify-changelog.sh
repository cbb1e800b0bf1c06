#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails when what users notice has changed since the last release and CHANGELOG.md
# says nothing about it, and when the install names images of a version that is
# released already: a version is pushed once. What the docs tell to apply is of the version
# that the install names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# entries HEADING: the lines of a section of the changelog.
entries() {
  awk -v heading="## $1" '/^## / { inside = $0 == heading; next } inside && NF' CHANGELOG.md
}

failed=0
if [[ "$(grep -m1 '^## ' CHANGELOG.md)" != '## Unreleased' ]]; then
  echo "CHANGELOG.md does not begin with ## Unreleased" >&2
  failed=1
fi
# A clone without tags, or before the first one, knows of no release.
if last="$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null)" && [[ -n "$(git rev-list -n 1 "$last..HEAD")" ]]; then
  if ! git diff --quiet "$last" -- apis artifacts cmd && [[ -z "$(entries Unreleased)" ]]; then
    echo "apis, artifacts or cmd changed since $last, and CHANGELOG.md has nothing under ## Unreleased" >&2
    failed=1
  fi
  if grep -q "newTag: $last\$" artifacts/deploy/components/images/kustomization.yaml; then
    echo "artifacts/deploy/components/images names $last, which is released: put the next version there" >&2
    failed=1
  fi
fi
next="$(awk '$1 == "newTag:" { print $2; exit }' artifacts/deploy/components/images/kustomization.yaml)"
if git grep -nE '\?ref=v[0-9]' -- '*.md' '*.yaml' | grep -v "?ref=$next\b" >&2; then
  echo "the lines above refer to another version than $next, which artifacts/deploy/components/images names" >&2
  failed=1
fi
exit "$failed"
