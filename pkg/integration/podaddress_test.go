// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/podstest"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// withPods lets a server read Pods of a cluster, of which it watches nothing.
func withPods(cluster *podstest.Server) testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.ClientConfig = cluster.Config
		c.GenericConfig.SharedInformerFactory = informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	})
}

// TestAddressOfAnotherPod is the case in which the controllers are down, or behind: the pods of
// ready sandboxes are deleted, and pods of another tenant get their addresses. The test writes the
// status of the sandboxes as the controllers did before. The cluster is a double that serves reads
// of Pods only: no test can make a cluster give an address to a certain pod.
func TestAddressOfAnotherPod(t *testing.T) {
	t.Parallel()
	cluster := podstest.Start(t)
	s := testutil.Start(t, withPods(cluster))
	fleet := runtimetest.Start(t)
	var reached atomic.Int32
	fleet.Script(func(_ *runtimetest.Runtime, call runtimetest.Call) runtimetest.Action {
		if call.Path == "/health" {
			reached.Add(1)
		}
		return runtimetest.Action{}
	})
	set := builders.Set("pool", 3)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	set, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stock := map[string]*runtimetest.Runtime{}
	var ready []*v1alpha1.Sandbox
	names := s.StockWith(t, set, 0, 3, func(i int, sb *v1alpha1.Sandbox) {
		rt := fleet.Next()
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP, sb.Status.PodInfo.PodUID = rt.IP, rt.IP, types.UID(fmt.Sprint("pod-", i))
		stock[sb.Name] = rt
		ready = append(ready, sb.DeepCopy())
	})
	// Only the last sandbox still has its pod.
	last := names[2]
	cluster.Set(podstest.PodOf(ready[2]))
	for _, sb := range ready[:2] {
		stranger := podstest.PodOf(sb)
		stranger.Namespace, stranger.Name, stranger.UID = "team-b", "stranger-"+sb.Name, "stranger"
		cluster.Set(stranger)
	}

	proxied := func(name string) error {
		return s.Client.AgentsV1alpha1().RESTClient().Get().Namespace(namespace).Resource("sandboxes").Name(name).
			SubResource("proxy").Suffix(fmt.Sprint(runtimetest.Port), "health").Do(t.Context()).Error()
	}
	unavailable := func(when string, err error) {
		t.Helper()
		if !apierrors.IsServiceUnavailable(err) || reached.Load() != 0 {
			t.Errorf("%s: got %v after %d requests", when, err, reached.Load())
		}
	}
	for _, name := range names[:2] {
		unavailable("the address is another pod's", proxied(name))
	}
	cluster.SetDown(true)
	unavailable("kube-apiserver does not answer", proxied(last))
	cluster.SetDown(false)
	if err := proxied(last); err != nil || reached.Load() != 1 {
		t.Errorf("the pod is there: got %v after %d requests", err, reached.Load())
	}

	// The claim gets the one sandbox that has a pod, however often it is given another one first.
	claim := create(t, s, testutil.Claim(set, "env", 1, asks))
	claim = s.AwaitClaim(t, namespace, claim.Name, testutil.Completed)
	if len(claim.Status.Sandboxes) != 1 || claim.Status.Sandboxes[0].Name != last {
		t.Errorf("the claim ends with %+v, want %s", claim.Status, last)
	}
	for _, name := range names[:2] {
		if n := len(stock[name].Calls()); n != 0 {
			t.Errorf("a pod of another tenant at the address of %s was called %d times", name, n)
		}
	}
	if stock[last].Env()["TOKEN"] != secret {
		t.Errorf("the sandbox has %v", stock[last].Env())
	}
}

// TestClaimsWithoutRuntimeReadNoPods checks that only those pay for the check who need it.
func TestClaimsWithoutRuntimeReadNoPods(t *testing.T) {
	t.Parallel()
	cluster := podstest.Start(t)
	s := testutil.Start(t, withPods(cluster))
	set := s.Set(t, namespace, "pool", 2)
	s.StockWith(t, set, 0, 2, func(i int, sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodUID = types.UID(fmt.Sprint("pod-", i)) })
	create(t, s, testutil.Claim(set, "plain", 2, waits))
	if claim := s.AwaitClaim(t, namespace, "plain", testutil.Completed); claim.Status.ClaimedReplicas != 2 || cluster.Reads() != 0 {
		t.Errorf("the claim ends with %+v after %d reads of Pods", claim.Status, cluster.Reads())
	}
}
