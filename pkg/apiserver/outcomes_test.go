// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// attempts are the transactions that write the claim "one", in the order in which they
// came. They come one after the other.
type attempts []*tapTxn

// onAttempts lets do decide about the transactions that write the claim "one"; i counts
// them. All others pass.
func (kv *tapKV) onAttempts(do func(i int, all attempts) (*clientv3.TxnResponse, error)) {
	var mu sync.Mutex
	var all attempts
	kv.decide(func(t *tapTxn) (*clientv3.TxnResponse, error) {
		if !t.putsClaim("one") {
			return t.send()
		}
		mu.Lock()
		all = append(all, t)
		seen := slices.Clone(all)
		mu.Unlock()
		return do(len(seen)-1, seen)
	})
}

// A create that fails has stored nothing and never will: etcd may still hold a
// transaction that it did not answer, and write it after the caller has the error.
func TestFailedCreateIsNotStoredLater(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.SandboxClaim){"bound": fails, "waiting": waits} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stock := 3
			if name == "waiting" {
				stock = 0
			}
			s, kv, set := startTapped(t, stock, withoutWaiting())
			var first *tapTxn
			kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
				if i == 0 {
					first = all[0]
					return nil, errLost // it stays proposed
				}
				return nil, rpctypes.ErrTooManyRequests
			})
			_, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 3, change))
			if err == nil {
				t.Fatal("the create succeeds although nothing was written")
			}
			if apierrors.IsTimeout(err) {
				t.Fatalf("the outcome is said to be unknown, which can be found out: %v", err)
			}
			kv.decide(nil)
			if _, err := first.send(); err != nil {
				t.Fatal(err)
			}
			if _, err := claimsOf(s).Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the create failed, and then the claim appeared: %v", err)
			}
			if n := bound(t, s); n != 0 {
				t.Errorf("the create failed, and then %d sandboxes were bound", n)
			}
			if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 3, change)); err != nil {
				t.Errorf("creating it again: %v", err)
			}
			if n := bound(t, s); n != stock {
				t.Errorf("creating it again has bound %d in all, want %d", n, stock)
			}
		})
	}
}

// A claim that was stored and then deleted stays deleted, also if the server had no
// answer and does not find it when it looks.
func TestDeletedClaimIsNotStoredAgain(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.SandboxClaim){"bound": fails, "waiting": waits} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stock := 0
			if name == "bound" {
				stock = 9
			}
			s, kv, set := startTapped(t, stock, withoutWaiting())
			kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
				resp, err := all[i].send()
				if i > 0 || err != nil {
					return resp, err
				}
				if err := claimsOf(s).Delete(context.WithoutCancel(t.Context()), "one", metav1.DeleteOptions{}); err != nil {
					t.Errorf("deleting: %v", err)
				}
				return nil, errLost
			})
			claim, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 3, change))
			t.Logf("the create is answered %q, %v", claim.Status.Message, err)
			if _, err := claimsOf(s).Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the claim that was deleted is there again: %v", err)
			}
			if n := bound(t, s); n != min(stock, 3) {
				t.Errorf("%d sandboxes are bound, want the %d that the claim had", n, min(stock, 3))
			}
		})
	}
}

// After a transaction whose answer was lost, the index waits for the revision of the transaction.
// If it waited for a later revision of the claim, livez would fail.
func TestIndexIsNotBehindAfterAnUnknownOutcome(t *testing.T) {
	s, kv, set := startTapped(t, 3)
	kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
		resp, err := all[i].send()
		if i > 0 || err != nil {
			return resp, err
		}
		label := []byte(`{"metadata":{"labels":{"changed":"since"}}}`)
		if _, err := claimsOf(s).Patch(context.WithoutCancel(t.Context()), "one", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Errorf("changing the claim: %v", err)
		}
		return nil, errLost
	})
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 1, fails)); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	admin := &conn{s, client}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		_, metrics := admin.do(t, http.MethodGet, "/metrics", "", "")
		if !bytes.Contains(metrics, []byte("\nsandlot_pool_index_behind_seconds 0\n")) {
			return errors.New("the index is behind the transaction")
		}
		return nil
	})
}

// Another client may take the name while the server does not know whether it has it.
func TestUnknownOutcomeAndTheNameIsTaken(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 10)
	kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
		if i > 0 {
			return all[i].send()
		}
		if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 1, fails)); err != nil {
			t.Errorf("the other client: %v", err)
		}
		return nil, errLost
	})
	if claim, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 3, fails)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %+v, %v; want AlreadyExists", claim.Status, err)
	}
	stored := s.AwaitClaim(t, "default", "one", testutil.Completed)
	if n := bound(t, s); n != 1 || stored.Status.ClaimedReplicas != 1 {
		t.Errorf("%d sandboxes are bound and the claim has %d, want 1: that of the other client", n, stored.Status.ClaimedReplicas)
	}
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "rest", 9, fails)); err != nil {
		t.Errorf("claiming the rest of the pool: %v", err)
	}
}

// A transaction may be written after the claim was read and not found.
func TestWrittenAfterTheClaimWasNotFound(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 10)
	var late *tapTxn
	land := func() {
		if late == nil {
			return
		}
		if _, err := late.send(); err != nil {
			t.Errorf("writing late: %v", err)
		}
		late = nil
	}
	kv.onPut = land
	sent := false
	kv.decide(func(txn *tapTxn) (*clientv3.TxnResponse, error) {
		if txn.putsClaim("one") && !sent {
			late, sent = txn, true
			return nil, errLost
		}
		if txn.puts() > 0 {
			land() // before whatever is written next
		}
		return txn.send()
	})
	claim, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 3, fails))
	if err != nil {
		t.Fatalf("the create of a claim that is stored fails: %v", err)
	}
	if n := bound(t, s); n != 3 || claim.Status.ClaimedReplicas != 3 {
		t.Errorf("%d sandboxes are bound and the answer says %d, want 3", n, claim.Status.ClaimedReplicas)
	}
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "rest", 7, fails)); err != nil {
		t.Errorf("claiming the rest of the pool: %v", err)
	}
}

// A caller that leaves while the transaction is on its way leaves a claim that is whole.
func TestCallerLeavesDuringTheTransaction(t *testing.T) {
	for name, lost := range map[string]bool{"answered": false, "not answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, kv, set := startTapped(t, 10)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			answered := make(chan struct{})
			kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
				if i > 0 {
					return all[i].send()
				}
				leave()
				<-answered // the client has gone
				time.Sleep(50 * time.Millisecond)
				if lost {
					return nil, errLost
				}
				resp, err := all[i].send()
				if gone := all[i].ctx.Err(); gone != nil {
					return nil, gone // as etcd's client does
				}
				return resp, err
			})
			_, err := claimsOf(s).Create(ctx, testutil.Claim(set, "one", 3, fails), metav1.CreateOptions{})
			close(answered)
			if err == nil {
				t.Fatal("the call of a client that left succeeds")
			}
			claim := s.AwaitClaim(t, "default", "one", testutil.Completed)
			if n := bound(t, s); n != 3 || claim.Status.ClaimedReplicas != 3 {
				t.Errorf("%d sandboxes are bound and the claim says %d, want 3", n, claim.Status.ClaimedReplicas)
			}
			if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "rest", 7, fails)); err != nil {
				t.Errorf("claiming the rest of the pool: %v", err)
			}
		})
	}
}

// A candidate that changed in a harmless way, or was unready for a moment, is lost to the
// claim that had taken it, and can be claimed on that server afterwards.
func TestLostCandidatesComeBack(t *testing.T) {
	ready := testutil.ReadyStatus(1, time.Now())
	unready := *ready.DeepCopy()
	unready.Conditions[0].Status = metav1.ConditionFalse
	tests := map[string]func(t *testing.T, s *testutil.Server, name string){
		"labelled": func(t *testing.T, s *testutil.Server, name string) {
			if _, err := s.Client.AgentsV1alpha1().Sandboxes("default").
				Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		},
		"unready for a moment": func(t *testing.T, s *testutil.Server, name string) {
			for _, status := range []v1alpha1.SandboxStatus{unready, ready} {
				sb, err := s.Client.AgentsV1alpha1().Sandboxes("default").Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				become(t, s, *sb, status)
			}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const stock = 6
			s, kv, set := startTapped(t, stock)
			kv.onAttempts(func(i int, all attempts) (*clientv3.TxnResponse, error) {
				for n := range stock {
					if i == 0 {
						change(t, s, testutil.AvailableSandbox(set, n).Name)
					}
				}
				return all[i].send()
			})
			before := kv.writes.Load()
			if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", stock/2, fails)); err != nil {
				t.Fatalf("a claim that loses its candidates: %v", err)
			}
			if kv.writes.Load()-before < 2 {
				t.Error("no candidate was lost")
			}
			if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "rest", stock/2, fails)); err != nil {
				t.Errorf("claiming the rest of the pool: %v", err)
			}
		})
	}
}

// A claim that is deleted and made again under its name is another claim: the work of
// the one before ends, and what was started for it is released. The server that had
// it reads it only after both.
func TestClaimMadeAgainUnderItsName(t *testing.T) {
	t.Parallel()
	s, kv, set := startTapped(t, 0, withoutWaiting())
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 2, func(c *v1alpha1.SandboxClaim) {
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	})); err != nil {
		t.Fatal(err)
	}
	its := madeFor(t, s, "one", 2)
	release := kv.holdReads()
	if err := claimsOf(s).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "one", 1, waits))
	if err != nil {
		t.Fatal(err)
	}
	release()
	for i := range its {
		sb := &its[i]
		expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
			sb, err = s.Client.AgentsV1alpha1().Sandboxes("default").Get(ctx, its[i].Name, metav1.GetOptions{})
			if err == nil && (sb.Annotations[v1alpha1.AnnotationOwner] != "" || sb.Spec.ShutdownTime == nil) {
				err = fmt.Errorf("sandbox %s is not let go: %v", sb.Name, sb.Annotations)
			}
			return err
		})
		if i == 0 {
			become(t, s, *sb, testutil.ReadyStatus(1, time.Now())) // too late
		}
	}
	s.Stock(t, set, 10, 2)
	claim := s.AwaitClaim(t, "default", "one", testutil.Completed)
	if claim.UID != again.UID || len(claim.Status.Sandboxes) != 1 || bound(t, s) != 1 {
		t.Errorf("ends with %+v, and %d sandboxes are bound", claim.Status, bound(t, s))
	}
	if _, err := s.CreateOnce(t.Context(), "default", testutil.Claim(set, "rest", 1, fails)); err != nil {
		t.Errorf("claiming the rest of the pool: %v", err)
	}
}
