// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Claims that waited when their server stopped leave nothing to do behind once they
// are served.
func TestRestsAfterARestart(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 0, withoutWaiting())
	for i := range 3 {
		if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, fmt.Sprintf("c-%d", i), 1, waits)); err != nil {
			t.Fatal(err)
		}
	}
	// With this many sandboxes the server knows the claims before the pools.
	s.Stock(t, s.Set(t, "default", "another", 3000), 0, 3000)
	s.Stop()
	s = testutil.Start(t, testutil.WithEtcd(s.EtcdServers), withoutWaiting(), kv.server())
	kv.comesToRest(t, expect.Patience)
	s.Stock(t, set, 0, 3)
	for i := range 3 {
		s.AwaitClaim(t, "default", fmt.Sprintf("c-%d", i), testutil.Completed)
	}
	kv.comesToRest(t, 10*time.Second)
}

// madeFor waits until the claim has n sandboxes that are starting, and returns them.
func madeFor(t *testing.T, s *testutil.Server, claim string, n int) []v1alpha1.Sandbox {
	t.Helper()
	var starting []v1alpha1.Sandbox
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := s.Client.AgentsV1alpha1().Sandboxes("default").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim})
		if err != nil {
			return err
		}
		starting = nil
		for _, sb := range list.Items {
			if sb.Annotations[v1alpha1.AnnotationStarting] != "" && sb.Status.Phase == v1alpha1.SandboxPending {
				starting = append(starting, sb)
			}
		}
		if len(starting) != n {
			return fmt.Errorf("claim %s has %d sandboxes that are starting, want %d", claim, len(starting), n)
		}
		return nil
	})
	return starting
}

// become writes the status of a sandbox, as its controller does.
func become(t *testing.T, s *testutil.Server, sb v1alpha1.Sandbox, status v1alpha1.SandboxStatus) {
	t.Helper()
	sb.Status = status
	if _, err := s.Client.AgentsV1alpha1().Sandboxes(sb.Namespace).UpdateStatus(t.Context(), &sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// processorTime is what this process has used of the processors while do ran.
func processorTime(t *testing.T, do func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			t.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	do()
	return used() - before
}

// A claim for all or nothing holds sandboxes that are ready and do not count yet. They
// may be held for longer than they were given to become ready, and that costs nothing.
//
// Nothing runs beside this test, because it measures what the process takes.
func TestRestsWhileAllOrNothingHoldsReadySandboxes(t *testing.T) {
	const waitReady = 2 * time.Second
	s, kv, set := startTapped(t, 0, withoutWaiting())
	time.Sleep(3 * time.Second) // until the server has started and etcd is idle
	idle := processorTime(t, func() { time.Sleep(time.Second) })
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "both", 2, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
		c.Spec.ClaimTimeout, c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: waitReady}
	})); err != nil {
		t.Fatal(err)
	}
	become(t, s, madeFor(t, s, "both", 2)[0], testutil.ReadyStatus(1, time.Now()))
	time.Sleep(waitReady + 500*time.Millisecond)
	before := kv.calls()
	const window = 3 * time.Second
	took := processorTime(t, func() { time.Sleep(window) })
	if took > 3*idle+window/6 {
		t.Errorf("in %s the process takes %s, and before it took %s a second: it does not rest", window, took, idle)
	}
	// The other is released when it is not ready in time, and made again.
	if n := kv.calls() - before; n > 20 {
		t.Errorf("%d calls of etcd in %s", n, window)
	}
}

// limitedTo refuses transactions of more than so many objects, as an etcd does that is
// set to take less than its default.
func limitedTo(puts int) func(*tapTxn) (*clientv3.TxnResponse, error) {
	return func(txn *tapTxn) (*clientv3.TxnResponse, error) {
		if txn.puts() > puts {
			return nil, rpctypes.ErrTooManyOps
		}
		return txn.send()
	}
}

// A claim that waits for what etcd will never take must not keep others from it, nor
// try for ever.
func TestTooLargeClaimsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 0, withoutWaiting())
	kv.decide(limitedTo(3))
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "large", 3, func(c *v1alpha1.SandboxClaim) {
		waits(c)
		c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
	})); err != nil {
		t.Fatal(err)
	}
	s.Stock(t, set, 0, 3)
	time.Sleep(2 * time.Second) // it has tried by now
	for i := range 3 {
		var err error
		for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
			if _, err = s.CreateOnce(t.Context(), "default", testutil.Claim(set, fmt.Sprintf("small-%d", i), 1, fails)); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("a claim for one is refused for as long as the large one tries: %v", err)
		}
	}
	kv.comesToRest(t, 10*time.Second)
}

// A claim for all or nothing shows all or nothing, however little etcd takes at once.
func TestAllOrNothingIsNotCutBySize(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 0, withoutWaiting())
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "three", 3, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	})); err != nil {
		t.Fatal(err)
	}
	watch, err := claimsOf(s).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	// All fail, but etcd does not take it that two are released at once.
	allFailed := make(chan struct{})
	var refused atomic.Bool
	kv.decide(func(txn *tapTxn) (*clientv3.TxnResponse, error) {
		<-allFailed
		if txn.puts() > 2 && refused.CompareAndSwap(false, true) {
			return nil, rpctypes.ErrTooManyOps
		}
		return txn.send()
	})
	for _, sb := range madeFor(t, s, "three", 3) {
		become(t, s, sb, v1alpha1.SandboxStatus{Phase: v1alpha1.SandboxFailed})
	}
	time.Sleep(100 * time.Millisecond) // so that the server has heard of it
	close(allFailed)
	ready := madeFor(t, s, "three", 3)
	if !refused.Load() {
		t.Error("no transaction was refused")
	}
	for i, sb := range ready {
		become(t, s, sb, testutil.ReadyStatus(i, time.Now()))
	}
	for {
		select {
		case event := <-watch.ResultChan():
			claim, ok := event.Object.(*v1alpha1.SandboxClaim)
			if !ok {
				t.Fatalf("watching: %+v", event)
			}
			if n := claim.Status.ClaimedReplicas; n != 0 && n != 3 {
				t.Fatalf("the claim shows %d of 3", n)
			}
			if testutil.Completed(claim) == "" {
				if claim.Status.ClaimedReplicas != 3 {
					t.Errorf("the claim ends with %q", claim.Status.Message)
				}
				return
			}
		case <-time.After(expect.Patience):
			t.Fatal("the claim does not end")
		}
	}
}

// withCluster lets a server ask a cluster for PodTemplates that answers each time with
// an error of another text.
func withCluster(t *testing.T, name string) testutil.Option {
	t.Helper()
	var n atomic.Int64
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/podtemplates/") {
			http.Error(w, fmt.Sprintf("%s is broken for the %d. time", name, n.Add(1)), http.StatusForbidden)
			return
		}
		http.Error(w, "not there", http.StatusNotFound)
	}))
	t.Cleanup(cluster.Close)
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.ClientConfig = &restclient.Config{Host: cluster.URL}
		// What the server watches in a cluster has nothing to do with it, and is empty.
		c.GenericConfig.SharedInformerFactory = informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	})
}

// What is in the way of a claim that waits may have another text each time that the
// server looks, and on each server. The claim's message says what its user can act on.
func TestChangingErrorsAreWrittenRarely(t *testing.T) {
	t.Parallel()
	s, kv, _ := startTapped(t, 0, withoutWaiting(), withCluster(t, "one"))
	testutil.Start(t, testutil.WithEtcd(s.EtcdServers), withoutWaiting(), withCluster(t, "two"), kv.server())
	set, err := s.Client.AgentsV1alpha1().SandboxSets("default").Create(t.Context(), &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Name: "far"},
		Spec: v1alpha1.SandboxSetSpec{
			Replicas: new(int32(1)),
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				TemplateRef: &v1alpha1.SandboxTemplateRef{APIVersion: "v1", Kind: "PodTemplate", Name: "far"},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "waits", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	})); err != nil {
		t.Fatal(err)
	}
	s.AwaitClaim(t, "default", "waits", func(c *v1alpha1.SandboxClaim) string {
		if !strings.Contains(c.Status.Message, "cannot be read now") {
			return "it does not say what is wrong: " + c.Status.Message
		}
		return ""
	})
	const window = 10 * time.Second // so that the second server is at it as well
	before := kv.writes.Load()
	time.Sleep(window)
	if n := kv.writes.Load() - before; n > 15 {
		t.Errorf("the claim that waits was written %d times in %s", n, window)
	}
}
