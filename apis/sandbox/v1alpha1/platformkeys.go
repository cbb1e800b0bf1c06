// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
)

// What platforms act on when they find it on a pod: they put containers beside it, give
// it the identity of another workload, run it in another runtime, attach it to networks
// or keep its node alive. That is for those who make pools. This list is the only one;
// a key that is missing is added here.
var (
	// platformDomains are the domains of keys, with all domains below them.
	platformDomains = []string{
		// Kubernetes itself: scheduling, bandwidth, AppArmor, seccomp, autoscaling.
		"kubernetes.io", "k8s.io", "x-k8s.io",
		// What puts containers beside those of a pod, or leads its traffic elsewhere.
		"1password.io", "aquasec.com", "banzaicloud.io", "consul.hashicorp.com", "dapr.io", "datadoghq.com",
		"dynatrace.com", "istio.io", "jaegertracing.io", "kuma.io", "linkerd.io", "newrelic.com", "odigos.io",
		"openservicemesh.io", "opentelemetry.io", "stackrox.io", "vault.hashicorp.com",
		// Identity, and what clouds do with pods.
		"alibabacloud.com", "aliyun.com", "amazonaws.com", "azure.com", "azure.workload.identity", "cloud.google.com",
		"gke.io", "k8s.aws", "openshift.io", "spiffe.io", "tencent.com",
		// Container runtimes, and what plugs into them.
		"containerd.io", "cri-o.io", "crio.io", "kubevirt.io", "nri.io", "nvidia.com",
		// Networks.
		"antrea.io", "cilium.io", "cncf.io", "kube-router.io", "multus-cni.io", "ovn.org", "projectcalico.org",
		"tigera.io",
		// Schedulers and autoscalers.
		"karpenter.sh", "keda.sh", "koordinator.sh", "run.ai", "volcano.sh", "yunikorn.apache.org",
	}

	// platformPrefixes begin keys that are not named by domains.
	platformPrefixes = []string{
		"dev.gvisor.", "gke-gcsfuse/", "io.cilium.", "io.containerd.", "io.containers.", "io.katacontainers.",
		"io.kubernetes.", "module.wasm.image/", "org.systemd.property.", "run.oci.",
	}

	// platformKeys are keys without any domain.
	platformKeys = []string{"aadpodidbinding", "istio-injection"}

	// ordinaryDomains are below platformDomains, and mean nothing to a platform: the
	// recommended labels of applications, and what kubectl alone reads.
	ordinaryDomains = []string{"app.kubernetes.io", "kubectl.kubernetes.io"}
)

// IsPlatformKey reports whether platforms act on a label or annotation of this key when a
// pod has it. A claim may not bring such a key, and it never reaches a pod from one.
func IsPlatformKey(key string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	if slices.Contains(ordinaryDomains, domain) {
		return false
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	return strings.Contains(key, "/") && slices.ContainsFunc(platformDomains, within) ||
		slices.ContainsFunc(platformPrefixes, begins) || slices.Contains(platformKeys, key)
}
