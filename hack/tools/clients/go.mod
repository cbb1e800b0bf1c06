// The version of the generators of clients. It is the oldest one that pkg/client builds
// with, because they write calls of the client-go of their own version. One tool is
// named so that the module stays required; hack/update-codegen.sh takes
// kube_codegen.sh from it, which installs the generators of the same version.
module github.com/sandlot-io/sandlot/hack/tools/clients

go 1.26.0

tool k8s.io/code-generator/cmd/client-gen

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/mod v0.37.0 // indirect
	golang.org/x/sync v0.21.0 // indirect
	golang.org/x/text v0.39.0 // indirect
	golang.org/x/tools v0.47.0 // indirect
	k8s.io/code-generator v0.35.10 // indirect
	k8s.io/gengo/v2 v2.0.0-20250922181213-ec3ebc5fd46b // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
)
