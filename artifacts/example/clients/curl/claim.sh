#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Claims sandboxes with curl, prints their names, and gives them back.
# Usage: claim.sh [POOL [REPLICAS]], with in the environment
#   SERVER     URL of the API server
#   NAMESPACE  namespace to claim in (default)
#   CURL_ARGS  who one is and whom one trusts, such as
#              "--cacert ca.crt --header @token-header" or "--cert me.crt --key me.key"
# Exit status 75 means: too few sandboxes now, come again.
set -euo pipefail

pool=${1:-python} replicas=${2:-1}
claims=$SERVER/apis/agents.kruise.io/v1alpha1/namespaces/${NAMESPACE:-default}/sandboxclaims
read -ra auth <<<"${CURL_ARGS:-}"
# One name for all tries, so that at most one of them binds.
key=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
name=run-$key
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# call prints the status code, 000 if there was none, and leaves the body in $answer.
# 65 s: kube-apiserver ends every request after 60 s.
call() {
  curl --silent --max-time 65 "${auth[@]}" --output "$answer" --write-out '%{http_code}' \
    --header 'Content-Type: application/json' --header 'Accept: application/json' "$@" || true
}

fail() {
  cat "$answer" >&2
  exit "$1"
}

# metadata prints the metadata of the claim in $answer, without white space.
metadata() {
  local text
  text=$(tr -d ' \n\t' <"$answer")
  text=${text#*\"metadata\":\{}
  echo "${text%%,\"spec\":\{*}"
}

# uid_of prints the UID of the claim in $answer.
uid_of() {
  [[ $(metadata) =~ \"uid\":\"([^\"]+)\" ]] && echo "${BASH_REMATCH[1]}"
}

# is_ours says whether the claim in $answer has our key where it belongs.
is_ours() {
  local text
  text=$(metadata)
  [[ ${text#*\"annotations\":\{} == *"\"client.sandlot.io/key\":\"$key\""* ]]
}

body="{\"apiVersion\":\"agents.kruise.io/v1alpha1\",\"kind\":\"SandboxClaim\",
  \"metadata\":{\"name\":\"$name\",\"annotations\":{\"client.sandlot.io/key\":\"$key\"}},
  \"spec\":{\"templateName\":\"$pool\",\"replicas\":$replicas,\"onShortage\":\"Fail\"}}"
for try in 1 2 3 4 5 6; do
  case $(call --data "$body" "$claims?fieldValidation=Strict") in
    201) break ;;
    409) # A try before has come through, if it has our key.
      [[ $(call "$claims/$name") == 200 ]] && is_ours && break
      fail 1 ;;
    429)
      if grep -qE '"(SandboxShortage|TooManyWaitingClaims)"' "$answer"; then fail 75; fi ;;
    000 | 408 | 5??) ;; # it is not known whether the claim is stored
    *) fail 1 ;;
  esac
  ((try < 6)) || fail 1
  sleep $((try + RANDOM % 3))
done

uid=$(uid_of)

# A watch instead of polling. Each ends by itself after a minute.
until grep -qE '"phase": ?"Completed"' "$answer"; do
  curl --silent --no-buffer --max-time 65 "${auth[@]}" \
    "$claims?watch=true&timeoutSeconds=60&fieldSelector=metadata.name=$name" |
    grep -m 1 '"phase":"Completed"' >/dev/null || sleep 1
  [[ $(call "$claims/$name") != 404 ]] || fail 1
done

# Another claim that has the name by now is not ours.
[[ $(uid_of) == "$uid" ]] || fail 1
# Completed is not success: AllReplicasClaimed is.
grep -q '"AllReplicasClaimed"' "$answer" || fail 1
tr -d ' \n\t' <"$answer" | sed 's/.*"sandboxes":\[//; s/"conditions".*//' | grep -o '"name":"[^"]*"' | cut -d '"' -f 4

while code=$(call --data "{\"spec\":{\"claimUID\":\"$uid\"}}" "$claims/$name/release"); do
  [[ $code == 201 ]] && grep -qE '"remaining": ?0' "$answer" && break
  [[ $code != 40[0-79] && $code != 422 ]] || fail 1
  sleep 1
done
[[ $(call --request DELETE --data "{\"preconditions\":{\"uid\":\"$uid\"}}" "$claims/$name") == 200 ]] || fail 1
