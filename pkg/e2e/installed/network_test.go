// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

const (
	// Addresses outside of the cluster: that of the metadata of a cloud, and a public one.
	metadata = "169.254.169.254:80"
	public   = "8.8.8.8:53"

	runtimePort = ":49983"
)

// TestNetworkOfSandboxes: with the NetworkPolicy of a template and that of agent-runtimes, a claimed
// sandbox reaches public addresses, but neither parts of the cluster, other pods nor the metadata of a cloud.
// Without the first, a sandbox reaches them all. Pods do not reach runtimes, which the API server does.
func TestNetworkOfSandboxes(t *testing.T) {
	s := begin(t)
	template := builders.Template("isolated")
	template.Spec.Template = s.template()
	template.Spec.NetworkPolicyManagement = v1alpha1.NetworkPolicyManaged
	if _, err := s.SandboxTemplates(s.namespace).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.fill("isolated", 1, func(set *v1alpha1.SandboxSet) {
		set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "isolated"}
	})
	s.fill("open", 1)
	isolated, open := s.claim("isolated", "isolated"), s.claim("open", "open")

	outside := s.makeOutside()
	address := outside.pod("outside").Status.PodIP + ":80"
	inCluster := []string{
		controlplane.ServiceAddress + ":443", // kube-apiserver
		node.HostAddress() + ":6443",         // the same
		node.HostAddress() + ":2379",         // etcd
		node.Address() + ":10250",            // kubelet
		address,                              // a pod
		metadata,
	}
	runtimes := []string{s.pod(isolated).Status.PodIP + runtimePort, s.pod(open).Status.PodIP + runtimePort}
	everything := slices.Concat(inCluster, []string{public}, runtimes)
	own := func(name string) string { return s.pod(name).Status.PodIP + runtimePort }
	s.expectReached(isolated, everything, public, own(isolated))
	s.expectReached(open, everything, append(inCluster, public, own(open))...)
	outside.expectReached("outside", append(runtimes, address), address)
}

// makeOutside returns a namespace without policies, where the pod "outside" has addresses that are not in the
// cluster.
func (s *story) makeOutside() *story {
	s.Helper()
	outside := *s
	outside.namespace = s.makeNamespace()
	const pods = `
apiVersion: v1
kind: Pod
metadata: {name: outside}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    securityContext: {capabilities: {add: [NET_ADMIN]}}
    command: [sh, -c, "ip address add 169.254.169.254/32 dev lo && ip address add 8.8.8.8/32 dev lo && httpd -p 53 -h /tmp && exec httpd -f -p 80 -h /tmp"]
---
apiVersion: v1
kind: Pod
metadata: {name: router}
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    securityContext: {capabilities: {add: [NET_ADMIN]}}
    command: [sleep, infinity]
`
	if _, err := outside.tryKubectl(s.Context(), strings.ReplaceAll(pods, "IMAGE", realnode.ShellImage), "apply", "-f", "-"); err != nil {
		s.Fatal(err)
	}
	outside.kubectl("wait", "--for=condition=Ready", "pod/outside", "pod/router", "--timeout=5m")
	// In the network of the node, routes to these addresses lead to the pod.
	outside.kubectl("exec", "router", "--", "sh", "-c", `
		link=$(ip route get `+outside.pod("outside").Status.PodIP+` | sed -n 's/.* dev \([^ ]*\).*/\1/p')
		ip route add 169.254.169.254 dev $link && ip route add 8.8.8.8 dev $link`)
	return &outside
}

// expectReached waits until of some addresses, a pod can connect to these.
func (s *story) expectReached(pod string, tried []string, want ...string) {
	s.Helper()
	const script = `for to; do (nc -w 5 ${to%:*} ${to#*:} -e true && echo $to) 2>/dev/null & done; wait`
	slices.Sort(want)
	s.eventually(func(ctx context.Context) error {
		out, err := s.tryKubectl(ctx, "", append([]string{"exec", pod, "--", "sh", "-c", script, "sh"}, tried...)...)
		if err != nil {
			return err
		}
		if got := slices.Sorted(slices.Values(strings.Fields(out))); !slices.Equal(got, want) {
			return fmt.Errorf("of %q, %s reaches %q, and should reach %q", tried, pod, got, want)
		}
		return nil
	})
}

// pod returns a pod of the namespace.
func (s *story) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := s.kube.CoreV1().Pods(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pod
}
