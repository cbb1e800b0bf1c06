#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Checks what is written for people: the docs, the comments, log lines and descriptions of
# flags of Go files, and the subjects of commits. hack/prose has the rules, which Vale
# applies; go test ./hack/prose ./hack/messages has those that take more than words.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Subjects are checked from the commit after this one on: those before it had no rule.
start=5d740704478255b7b490ebd66b7879b2f8a3ff60

failed=0
vale="$(hack/tool.sh vale)"
config="$PWD/hack/prose/vale.ini"
temp="$(mktemp -d)"
trap 'rm -rf "$temp"' EXIT

"$vale" --config "$config" --output line README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md CODE_OF_CONDUCT.md GOVERNANCE.md ROADMAP.md docs/*.md || failed=1

CGO_ENABLED=0 GOWORK="$PWD/go.work" GOFLAGS="${GOFLAGS:-} -trimpath" go build -o "$temp/prose" ./hack/prose
# Generated files are left out by the program.
git ls-files -z '*.go' | xargs -0 "$temp/prose" "$temp/go"
(cd "$temp/go" && "$vale" --config "$config" --output line .) || failed=1

# subjects reads "hash subject" lines and prints those that break a rule.
subjects() {
  awk '
    function bad(why) { printf "commit %s: %s: %s\n", hash, why, subject; failed = 1 }
    {
      hash = $1; subject = substr($0, length(hash) + 2)
      if (length(subject) > 72) bad("longer than 72 characters")
      if (subject ~ /\.$/) bad("ends with a full stop")
      if (subject !~ /^[a-z0-9][a-z0-9 .,\/_*-]*: ./) { bad("does not begin with \"area: \" in lower case"); next }
      verb = subject; sub(/^[^:]*: /, "", verb); sub(/ .*/, "", verb)
      if (verb !~ /^[a-z][a-z-]*$/) bad("has no verb in lower case after the area")
      # Imperative verbs that end like another form.
      else if (verb ~ /(ed|ing|s)$/ && verb !~ /^(embed|feed|need|seed|shed|speed|bring|ping|string|access|address|bypass|compress|discuss|dismiss|express|focus|guess|miss|pass|process|suppress)$/)
        bad("\"" verb "\" is no imperative verb")
    }
    END { exit failed }
  '
}

if ! git cat-file -e "$start^{commit}" 2>/dev/null || ! git merge-base --is-ancestor "$start" HEAD; then
  if [[ "$(git rev-parse --is-shallow-repository)" == true ]]; then
    echo "The history is shallow and does not reach back to $start: subjects of commits are not checked."
  else
    echo "commit $start, after which subjects of commits are checked, is not in the history of HEAD" >&2
    failed=1
  fi
else
  git log --no-merges --format='%h %s' "$start..HEAD" | subjects >&2 || failed=1
fi
exit "$failed"
