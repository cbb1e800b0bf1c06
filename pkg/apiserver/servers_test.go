// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// countSandboxes is admission that counts the sandboxes that it is asked about.
type countSandboxes struct{ n atomic.Int64 }

var _ admission.ValidationInterface = &countSandboxes{}

func (*countSandboxes) Handles(o admission.Operation) bool { return o == admission.Create }

func (c *countSandboxes) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().Kind == "Sandbox" {
		c.n.Add(1)
	}
	return nil
}

// startThree starts three servers on one etcd, with one tapKV and one admission.
func startThree(t *testing.T) (*testutil.Server, *tapKV, *countSandboxes) {
	t.Helper()
	kv, admitted := &tapKV{}, &countSandboxes{}
	admit := testutil.WithConfig(func(c *apiserver.Config) { c.GenericConfig.AdmissionControl = admitted })
	etcd := testutil.WithEtcd(testutil.StartEtcd(t))
	s := testutil.Start(t, etcd, withoutWaiting(), kv.server(), admit)
	for range 2 {
		testutil.Start(t, etcd, withoutWaiting(), kv.server(), admit)
	}
	return s, kv, admitted
}

// takenUp is how old a claim is when other servers have taken it up: 5 seconds after
// the sync window, and a moment more.
const takenUp = 6500 * time.Millisecond

// A claim that waits for long is still the work of one server. How many transactions that
// takes depends on how late the watches of the servers are: they share a pool.
func TestOneServerServesALateClaim(t *testing.T) {
	t.Parallel()
	const n = 50
	s, kv, _ := startThree(t)
	set := s.Set(t, "default", "pool", n)
	for i := range n {
		if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, fmt.Sprintf("c-%d", i), 1, waits)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(takenUp)
	kv.comesToRest(t, expect.Patience)
	served := &servedBy{claims: map[string]map[*tappedKV]bool{}}
	kv.decide(served.note)
	before := kv.writes.Load()
	s.Stock(t, set, 0, n)
	for i := range n {
		s.AwaitClaim(t, "default", fmt.Sprintf("c-%d", i), testutil.Completed)
	}
	kv.comesToRest(t, expect.Patience)
	kv.decide(nil)
	written, several := served.count()
	// A server that is kept from its lease for long may leave some to others.
	if written != n || several > n/5 {
		t.Errorf("of %d claims %d were written, %d of them by several servers", n, written, several)
	}
	if sent := kv.writes.Load() - before; sent > 5*n {
		t.Errorf("%d claims are served with %d transactions", n, sent)
	}
}

// servedBy is which servers sent transactions that write claims, by the keys of these.
type servedBy struct {
	mu     sync.Mutex
	claims map[string]map[*tappedKV]bool
}

// count returns how many claims were written, and how many of them by several servers.
func (s *servedBy) count() (written, several int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, servers := range s.claims {
		if len(servers) > 1 {
			several++
		}
	}
	return len(s.claims), several
}

// note sends a transaction.
func (s *servedBy) note(t *tapTxn) (*clientv3.TxnResponse, error) {
	s.mu.Lock()
	for _, key := range t.claims() {
		if s.claims[key] == nil {
			s.claims[key] = map[*tappedKV]bool{}
		}
		s.claims[key][t.kv] = true
	}
	s.mu.Unlock()
	return t.send()
}

// What is made for a claim that waited for long is admitted, and so charged to a quota,
// once.
func TestLateClaimsAreChargedOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	s, kv, admitted := startThree(t)
	later := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "later"}}
	for i := range n {
		if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(later, fmt.Sprintf("c-%d", i), 1, func(c *v1alpha1.SandboxClaim) {
			c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
		})); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(takenUp)
	kv.comesToRest(t, expect.Patience)
	s.Set(t, "default", "later", 0)
	for i := range n {
		madeFor(t, s, fmt.Sprintf("c-%d", i), 1)
	}
	kv.comesToRest(t, 10*time.Second)
	if got := admitted.n.Load(); got != n {
		t.Errorf("%d sandboxes are made, and %d were admitted", n, got)
	}
}
