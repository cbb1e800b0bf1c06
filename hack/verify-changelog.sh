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
chart=artifacts/deploy/chart/sandlot/Chart.yaml
next="$(awk '$1 == "appVersion:" { print $2 }' "$chart")"
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
  if grep -n '[Nn]o release is out yet\|[Uu]ntil there is a release' README.md docs/*.md >&2; then
    echo "$last is released: remove the lines above" >&2
    failed=1
  fi
  if [[ "$next" == "$last" ]]; then
    echo "$chart names $last, which is released: put the next version there" >&2
    failed=1
  fi
fi
if git grep -nE '\?ref=v[0-9]' -- '*.md' '*.yaml' | grep -v "?ref=$next\b" >&2; then
  echo "the lines above refer to another version than $next, which $chart names" >&2
  failed=1
fi
exit "$failed"
