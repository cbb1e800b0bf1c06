#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes what is made of the Helm chart, which is the source of all manifests: what users of
# kustomize apply. Into the chart it copies the alerts and the dashboard.

set -o errexit -o nounset -o pipefail -o noglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."

helm="${HELM:-$(hack/tool.sh helm)}"
deploy=artifacts/deploy
chart="$deploy/chart/sandlot"
cp artifacts/dashboard/alerts.yaml artifacts/dashboard/sandlot.json "$chart/files/"

render() { # folder, values, templates
    local folder="$1" only=()
    for template in "${@:3}"; do
        only+=(--show-only "templates/$template")
    done
    local rendered # first, so that a failure leaves the file as it was
    rendered="$("$helm" template sandlot "$chart" --namespace sandlot-system --set "static=true,$2" "${only[@]}")"
    {
        head -2 "$chart/values.yaml"
        echo
        echo "# Rendered from artifacts/deploy/chart/sandlot by hack/update-manifests.sh. DO NOT EDIT."
        sed '/^$/d' <<<"$rendered"
    } >"$deploy/$folder/rendered.yaml"
}

workloads=(apiserver/* controller-manager/*)
external='etcd.mode=external,etcd.external.endpoints={https://etcd-0.example.com:2379}'
for base in access api namespace; do
    render "bases/$base" '' "$base/*"
done
render default '' "${workloads[@]}" etcd/* backup/*
render single etcd.mode=embedded "${workloads[@]}" backup/*
render small etcd.mode=embedded,profile=small "${workloads[@]}"
render external-etcd "$external" "${workloads[@]}"
render local/install '' etcd/access.yaml
render components/agent-sandbox agentSandbox.enabled=true agent-sandbox/*
render components/dry-runs dryRuns.enabled=true dry-runs/*
for component in e2b-access e2b-gateway e2b-keys; do
    render "components/$component" gateway.enabled=true "$component/*"
done
