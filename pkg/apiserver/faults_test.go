// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// faultyKV lets a number of transactions go wrong.
type faultyKV struct {
	clientv3.KV
	mu     sync.Mutex
	faults []fault
}

// fault is how one call goes wrong. Neither tells the caller which it was.
type fault int

const (
	lostAnswer  fault = iota // written, but the client gets no answer
	lostRequest              // never written
	lostRead                 // a read that fails
)

var errLost = errors.New("the connection broke")

func (kv *faultyKV) plan(faults ...fault) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.faults = faults
}

// next returns the next fault if it is one of those that fit.
func (kv *faultyKV) next(fit ...fault) (fault, bool) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	for _, f := range fit {
		if len(kv.faults) > 0 && kv.faults[0] == f {
			kv.faults = kv.faults[1:]
			return f, true
		}
	}
	return 0, false
}

func (kv *faultyKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if _, wrong := kv.next(lostRead); wrong {
		return nil, errLost
	}
	return kv.KV.Get(ctx, key, opts...)
}

func (kv *faultyKV) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{Txn: kv.KV.Txn(ctx), kv: kv}
}

type faultyTxn struct {
	clientv3.Txn
	kv *faultyKV
}

func (t *faultyTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.Txn = t.Txn.If(cs...); return t }
func (t *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *faultyTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	switch f, wrong := t.kv.next(lostAnswer, lostRequest); {
	case !wrong:
		return t.Txn.Commit()
	case f == lostAnswer:
		if _, err := t.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	return nil, errLost
}

func startFaulty(t *testing.T, stock int) (*testutil.Server, *faultyKV, *v1alpha1.SandboxSet) {
	t.Parallel()
	kv := &faultyKV{}
	s := testutil.Start(t, testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.WrapKV(func(inner clientv3.KV) clientv3.KV { kv.KV = inner; return kv })
	}))
	set := s.Set(t, "default", "pool", int32(stock))
	s.Stock(t, set, 0, stock)
	return s, kv, set
}

func fails(c *v1alpha1.SandboxClaim) { c.Spec.OnShortage = v1alpha1.ShortageFail }

// bound counts the sandboxes that have an owner.
func bound(t *testing.T, s *testutil.Server) int {
	t.Helper()
	list, err := s.Client.AgentsV1alpha1().Sandboxes("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, sb := range list.Items {
		if sb.Annotations[v1alpha1.AnnotationOwner] != "" {
			n++
		}
	}
	return n
}

func TestUnknownOutcomeIsResolved(t *testing.T) {
	tests := map[string][]fault{
		"the answer is lost":                         {lostAnswer},
		"the request is lost":                        {lostRequest},
		"the request is lost, then the answer":       {lostRequest, lostAnswer},
		"the answer is lost, and reading fails once": {lostAnswer, lostRead},
		"the request is lost thrice":                 {lostRequest, lostRequest, lostRequest},
	}
	for name, faults := range tests {
		t.Run(name, func(t *testing.T) {
			s, kv, set := startFaulty(t, 10)
			kv.plan(faults...)
			claim, err := s.Client.AgentsV1alpha1().SandboxClaims("default").
				Create(t.Context(), testutil.Claim(set, "one", 3, fails), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(kv.faults) != 0 {
				t.Fatalf("%d faults did not happen", len(kv.faults))
			}
			if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || len(claim.Status.Sandboxes) != 3 || claim.ResourceVersion == "" {
				t.Errorf("answered %+v at %q", claim.Status, claim.ResourceVersion)
			}
			if n := bound(t, s); n != 3 {
				t.Errorf("%d sandboxes are bound, want 3", n)
			}
			// The rest of the pool is of use.
			if _, err := s.Client.AgentsV1alpha1().SandboxClaims("default").
				Create(t.Context(), testutil.Claim(set, "rest", 7, fails), metav1.CreateOptions{}); err != nil {
				t.Errorf("claiming the rest: %v", err)
			}
		})
	}
}

func TestUnknownOutcomeThatStaysUnknownIsSaid(t *testing.T) {
	s, kv, set := startFaulty(t, 3)
	faults := []fault{lostRequest}
	for range 1000 { // more than there are tries
		faults = append(faults, lostRead)
	}
	kv.plan(faults...)
	create := func() (*v1alpha1.SandboxClaim, error) {
		claim := &v1alpha1.SandboxClaim{}
		err := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace("default").Resource("sandboxclaims").
			MaxRetries(0).Body(testutil.Claim(set, "one", 3, fails)).Do(t.Context()).Into(claim)
		return claim, err
	}
	_, err := create()
	if !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "by the same name is safe") {
		t.Fatalf("got %v, want a timeout that says what to do", err)
	}
	kv.plan()
	claim, err := create()
	if err != nil {
		t.Fatalf("trying again by the same name: %v", err)
	}
	if len(claim.Status.Sandboxes) != 3 || bound(t, s) != 3 {
		t.Errorf("trying again binds %d, and %d are bound", len(claim.Status.Sandboxes), bound(t, s))
	}
}

func TestBackgroundWorkResolvesUnknownOutcomes(t *testing.T) {
	s, kv, set := startFaulty(t, 300)
	// The first transaction of three goes through; the next ones do not at first.
	kv.plan()
	go kv.plan(lostAnswer, lostRead, lostRequest)
	claim, err := s.Client.AgentsV1alpha1().SandboxClaims("default").
		Create(t.Context(), testutil.Claim(set, "batch", 300, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := bound(t, s); claim.Status.ClaimedReplicas != 300 || n != 300 {
		t.Errorf("answered %s with %d, and %d are bound, want 300", claim.Status.Phase, claim.Status.ClaimedReplicas, n)
	}
}
