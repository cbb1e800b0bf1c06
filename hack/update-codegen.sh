#!/usr/bin/env bash
# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes everything that is generated from apis/: deep copies, defaults, protobuf,
# OpenAPI, and in pkg/client the clientset, informers, listers and apply
# configurations; artifacts/schema; what the .proto files of pkg/runtimeserver
# describe; and the manifests from the Helm chart.
# Needs Go and protoc (protobuf-compiler of Debian).
#
# UPDATE_REPORT=1 accepts new entries in hack/api-violations.list.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
MODULE=github.com/sandlot-io/sandlot
BOILERPLATE="$ROOT/hack/boilerplate.go.txt"
cd "$ROOT"

# Each module is read with the libraries of its own go.mod, except that what is
# generated for the server is generated from the root.
export GOWORK=off

# The generators are installed into bin/, which git ignores. Their version is
# that of hack/tools/go.mod, and of hack/tools/clients/go.mod for those of
# clients. hack/verify-codegen.sh sets another folder.
export GOBIN="${CODEGEN_BIN:-$ROOT/bin}"
source_generators() { # folder of the go.mod that pins them
    (cd "$1" && go mod download k8s.io/code-generator)
    # shellcheck disable=SC1091
    source "$(cd "$1" && go list -m -f '{{.Dir}}' k8s.io/code-generator)/kube_codegen.sh"
}
source_generators hack/tools

# Types of these packages are referred to, so the OpenAPI has to describe them.
# They live in the module cache, where nothing may be written.
EXTRA_PKGS=(
    k8s.io/api/autoscaling/v1
    k8s.io/api/networking/v1
    k8s.io/apimachinery/pkg/util/intstr
)
KUBE_CODEGEN_READONLY_PKGS+=("${EXTRA_PKGS[@]}" k8s.io/api/core/v1)

schema="$(mktemp)"
protos="$(mktemp -d)"
trap 'rm -rf "$schema" "$protos"' EXIT

kube::codegen::gen_helpers \
    --boilerplate "$BOILERPLATE" \
    --lint-rules known-tags-only,require-explicit-disablement \
    apis

# Protobuf of the kinds that are stored. It reads and writes below a tree of import paths.
# Fields keep their numbers, which are in the tags of the types; new ones get the next.
gen_protobuf() {
    local module libraries=() pkg
    command -v protoc >/dev/null || {
        echo "There is no protoc: install it (apt-get install protobuf-compiler)." >&2
        return 1
    }
    (cd hack/tools && go install tool)
    mkdir -p "$protos/$MODULE" "$protos/k8s.io" "$protos/github.com/gogo"
    ln -s "$ROOT/apis" "$protos/$MODULE/apis"
    for module in k8s.io/api k8s.io/apimachinery; do
        ln -s "$(cd apis && go mod download "$module" && go list -m -f '{{.Dir}}' "$module")" "$protos/$module"
    done
    module=github.com/gogo/protobuf # what generates; nothing generated needs it
    ln -s "$(cd hack/tools && go list -m -f '{{.Dir}}' "$module")" "$protos/$module"
    for pkg in apimachinery/pkg/util/intstr apimachinery/pkg/api/resource apimachinery/pkg/runtime/schema \
        apimachinery/pkg/runtime apimachinery/pkg/apis/meta/v1 api/core/v1 api/networking/v1; do
        libraries+=("-k8s.io/$pkg") # read alone
    done
    (
        cd apis
        PATH="$GOBIN:$PATH" go-to-protobuf \
            --go-header-file "$BOILERPLATE" \
            --apimachinery-packages "$(IFS=,; echo "${libraries[*]}")" \
            --packages "$MODULE/apis/sandbox/v1alpha1" \
            --output-dir "$protos" \
            --proto-import "$protos/$module/protobuf"
    )
}
gen_protobuf

extra_args=()
for pkg in "${EXTRA_PKGS[@]}"; do
    extra_args+=(--extra-pkgs "$pkg")
done
kube::codegen::gen_openapi \
    --boilerplate "$BOILERPLATE" \
    "${extra_args[@]}" \
    --output-dir pkg/generated/openapi \
    --output-pkg "$MODULE/pkg/generated/openapi" \
    --output-model-name-file zz_generated.model_name.go \
    --report-filename hack/api-violations.list \
    ${UPDATE_REPORT:+--update-report} \
    apis

# Compiles the OpenAPI just written, so the order matters. A file, because a
# process substitution would hide a failure.
go run ./pkg/generated/openapi/cmd/models-schema > "$schema"

# JSON schemas for editors.
rm -rf artifacts/schema
go run ./hack/jsonschema artifacts/schema

# applyconfiguration-gen looks our types up under names made from their Go path,
# and quietly treats those it does not find as having no schema; everything else,
# the server's OpenAPI and client-go's type converter included, goes by the model
# names of the doc.go tag. So the generator is shown the one, and its output gets
# the other.
GO_NAMES=com.github.sandlot-io.sandlot.apis.sandbox.v1alpha1
MODEL_NAMES=io.kruise.agents.v1alpha1
replace() { # from, to, file
    sed "s#${1//./\\.}#$2#g" "$3" > "$3.new" && mv "$3.new" "$3"
}
replace "$MODEL_NAMES" "$GO_NAMES" "$schema"

# In the module of the clients and by the generators of the oldest libraries that
# it builds with: newer ones would write what these lack.
(
    source_generators hack/tools/clients
    cd pkg/client
    kube::codegen::gen_client \
        --boilerplate "$BOILERPLATE" \
        --with-watch \
        --with-applyconfig \
        --applyconfig-openapi-schema "$schema" \
        --output-dir . \
        --output-pkg "$MODULE/pkg/client" \
        ../../apis
)

while read -r file; do
    replace "$GO_NAMES" "$MODEL_NAMES" "$file"
done < <(grep -rl "$GO_NAMES" pkg/client/applyconfiguration)

hack/update-protobuf.sh
hack/update-manifests.sh
