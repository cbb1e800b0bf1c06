#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Claims sandboxes with kubectl, prints their names, and gives them back.
# Usage: claim.sh [POOL [REPLICAS]], in the namespace and cluster of kubectl.
# Exit status 75 means: too few sandboxes now, come again.
set -euo pipefail

pool=${1:-python} replicas=${2:-1}
kubectl=${KUBECTL:-kubectl}
# One name for all tries, so that at most one of them binds.
key=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
name=run-$key
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

create() {
  "$kubectl" create --request-timeout=65s -o 'jsonpath={.metadata.uid}' -f - <<YAML
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata:
  name: $name
  annotations:
    client.sandlot.io/key: "$key"
spec:
  templateName: $pool
  replicas: $replicas
  onShortage: Fail
YAML
}

for try in 1 2 3 4 5; do
  uid=$(create 2>"$answer") && break
  # Whatever was said: is it there? It has our key then.
  there=$("$kubectl" get sandboxclaims.agents.kruise.io "$name" --ignore-not-found \
    -o 'jsonpath={.metadata.uid} {.metadata.annotations.client\.sandlot\.io/key}' || true)
  uid=${there%% *}
  [[ "$there" == "$uid $key" ]] && break
  if grep -q 'sandboxes available' "$answer"; then
    cat "$answer" >&2
    exit 75
  fi
  if ((try == 5)) || grep -qE 'Forbidden|NotFound|Invalid|is invalid|AlreadyExists' "$answer"; then
    cat "$answer" >&2
    exit 1
  fi
  sleep $((try + RANDOM % 3))
done

# Completed is not success: Ready is.
"$kubectl" wait --for=condition=Completed --timeout=2m "sandboxclaims.agents.kruise.io/$name" >/dev/null
"$kubectl" wait --for=condition=Ready --timeout=5s "sandboxclaims.agents.kruise.io/$name" >/dev/null
mapfile -t got < <("$kubectl" get sandboxclaims.agents.kruise.io "$name" \
  -o 'jsonpath={.metadata.uid}{"\n"}{.metadata.namespace}{"\n"}{range .status.sandboxes[*]}{.name}{"\n"}{end}')
# Another claim that has the name by now is not ours. Nor is it given back: see the UID below.
[[ "${got[0]-}" == "$uid" ]]
printf '%s\n' "${got[@]:2}"

path=/apis/agents.kruise.io/v1alpha1/namespaces/${got[1]}/sandboxclaims/$name
"$kubectl" create --raw "$path/release" -f - <<<"{\"spec\":{\"claimUID\":\"$uid\"}}" >/dev/null
"$kubectl" delete --raw "$path" -f - <<<"{\"preconditions\":{\"uid\":\"$uid\"}}" >/dev/null
