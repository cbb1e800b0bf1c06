// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
)

// What platforms act on when they find it on a pod: they put containers beside it, give
// it secrets or the identity of another workload, run it in another runtime, attach it to
// networks, copy its volumes or keep its node alive. That is for those who make pools.
// This list is the only one; a key that is missing is added here. No such list is
// complete: what holds in every cluster is a PodMetadataPolicy, which names what may pass.
//
// prometheus.io is not in it: its keys say what of the pod itself is scraped, and give the
// pod nothing.
var (
	// platformDomains are the domains of keys, with all domains below them. Some are keys
	// by themselves.
	platformDomains = []string{
		// Kubernetes itself: scheduling, bandwidth, AppArmor, seccomp, autoscaling.
		"kubernetes.io", "k8s.io", "x-k8s.io",
		// What puts containers beside those of a pod, or leads its traffic elsewhere.
		"aquasec.com", "consul.hashicorp.com", "dapr.io", "datadoghq.com", "dynatrace.com", "elastic.co", "injector.nsm.nginx.com",
		"istio.io", "jaegertracing.io", "k8tz.io", "kubeslice.io", "kuma.io", "linkerd.io", "networkservicemesh.io",
		"newrelic.com", "nsm.nginx.com", "odigos.io", "openservicemesh.io", "opentelemetry.io", "sidecar.speedscale.com",
		"stackrox.io",
		// Secrets.
		"1password.io", "akeyless", "bank-vaults.io", "banzaicloud.io", "conjur.org", "infisical.com", "vault.hashicorp.com",
		// Identity, and what clouds do with pods.
		"alibabacloud.com", "aliyun.com", "amazonaws.com", "azure.com", "azure.workload.identity", "cloud.google.com",
		"gke.io", "k8s.aws", "openshift.io", "oraclecloud.com", "spiffe.io", "tencent.com", "volcengine.com",
		// Container runtimes, and what plugs into them.
		"containerd.io", "cri-o.io", "crio.io", "kubevirt.io", "nri.io", "nvidia.com",
		// Networks.
		"antrea.io", "cilium.io", "cncf.io", "kube-router.io", "multus-cni.io", "ovn.org", "projectcalico.org",
		"spidernet.io", "tigera.io",
		// Schedulers, autoscalers, and what changes or copies pods that run.
		"autoscaling.cast.ai", "karpenter.sh", "keda.sh", "koordinator.sh", "kruise.io", "run.ai", "spotinst.io", "velero.io",
		"volcano.sh", "yunikorn.apache.org",
	}

	// platformPrefixes begin keys that are not named by domains.
	platformPrefixes = []string{
		"co.elastic.", "dev.gvisor.", "gke-gcsfuse/", "instana-", "io.cilium.", "io.containerd.", "io.containers.",
		"io.katacontainers.", "io.kubernetes.", "kubearmor-", "module.wasm.image/", "org.systemd.property.", "run.oci.",
	}

	// platformKeys are keys without any domain.
	platformKeys = []string{"aadpodidbinding", "istio-injection"}

	// ordinaryDomains are below platformDomains, and mean nothing to a platform: the
	// recommended labels of applications, and what kubectl alone reads. Those of this API
	// have rules of their own.
	ordinaryDomains = []string{"app.kubernetes.io", "kubectl.kubernetes.io", GroupName, "e2b." + GroupName}
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
	return slices.ContainsFunc(platformDomains, within) ||
		slices.ContainsFunc(platformPrefixes, begins) || slices.Contains(platformKeys, key)
}
