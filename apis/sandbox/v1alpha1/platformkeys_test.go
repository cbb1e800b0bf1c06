// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

func TestIsPlatformKey(t *testing.T) {
	for key, want := range map[string]bool{
		// What users have.
		"app": false, "team": false, "example.com/app": false, "istio": false, "kruise": false,
		"app.kubernetes.io/name": false, "app.kubernetes.io/part-of": false, "kubectl.kubernetes.io/default-container": false,
		"helm.sh/chart": false, "prometheus.io/scrape": false, "notkubernetes.io/x": false, "kubernetes.io.example.com/x": false,
		"agents.kruise.io/cleanup-enabled": false, "e2b.agents.kruise.io/mine": false,
		"elastic": false, "notkruise.io/x": false, "instana": false,
		// What platforms act on.
		"kubernetes.io/ingress-bandwidth":                     true,
		"container.apparmor.security.beta.kubernetes.io/main": true,
		"seccomp.security.alpha.kubernetes.io/pod":            true,
		"cluster-autoscaler.kubernetes.io/safe-to-evict":      true,
		"x.app.kubernetes.io/y":                               true,
		"Pod-Security.Kubernetes.io/enforce":                  true,
		"scheduling.k8s.io/group-name":                        true,
		"kueue.x-k8s.io/queue-name":                           true,
		"k8s.v1.cni.cncf.io/networks":                         true,
		"sidecar.istio.io/inject":                             true,
		"istio.io/rev":                                        true,
		"linkerd.io/inject":                                   true,
		"config.linkerd.io/proxy-cpu-request":                 true,
		"dapr.io/enabled":                                     true,
		"vault.hashicorp.com/agent-inject":                    true,
		"azure.workload.identity/use":                         true,
		"aadpodidbinding":                                     true,
		"iam.amazonaws.com/role":                              true,
		"eks.amazonaws.com/skip-containers":                   true,
		"iam.gke.io/gcp-service-account":                      true,
		"gke-gcsfuse/volumes":                                 true,
		"io.katacontainers.config.hypervisor.default_memory":  true,
		"io.kubernetes.cri-o.userns-mode":                     true,
		"io.kubernetes.cri.untrusted-workload":                true,
		"dev.gvisor.spec.mount.data.type":                     true,
		"karpenter.sh/do-not-disrupt":                         true,
		"linkerd.io":                                          true,
		"vault.security.bank-vaults.io/vault-role":            true,
		"secrets-webhook.security.bank-vaults.io/mutate":      true,
		"co.elastic.logs/hosts":                               true,
		"conjur.org/inject":                                   true,
		"akeyless/enabled":                                    true,
		"org.infisical.com/inject":                            true,
		"networkservicemesh.io":                               true,
		"injector.nsm.nginx.com/auto-inject":                  true,
		"k8tz.io/inject":                                      true,
		"sidecar.speedscale.com/inject":                       true,
		"instana-autotrace":                                   true,
		"kubearmor-policy":                                    true,
		"pre.hook.backup.velero.io/command":                   true,
		"kruise.io/sidecarset-injected-list":                  true,
		"apps.kruise.io/runtime-containers-meta":              true,
		"x.agents.kruise.io/y":                                true,
		"spotinst.io/restrict-scale-down":                     true,
		"autoscaling.cast.ai/removal-disabled":                true,
		"vke.volcengine.com/eni":                              true,
		"oci.oraclecloud.com/initial-delay":                   true,
		"ipam.spidernet.io/ippool":                            true,
		"kubeslice.io/slice":                                  true,
	} {
		if got := IsPlatformKey(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
}
