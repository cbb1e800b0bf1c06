// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// waiting returns a claim of more than there is, of all or nothing, that waits for
// longer than a test lasts.
func waiting(name string) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, 3)
	claim.Spec.Allocation = v1alpha1.AllocationAllOrNothing
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	return claim
}

// TestWaitingClaims lets 4,000 claims of all or nothing wait for the two sets of a
// template, and then some stock come and some claims more.
func TestWaitingClaims(t *testing.T) {
	const lines, batch, clients, events = 4000, 100, 32, 20
	s := startServer(t, "--sync-window=20ms", fmt.Sprintf("--max-waiting-claims-per-namespace=%d", 3*lines))
	innocent := s.innocent(t)
	if _, err := s.SandboxTemplates(eve).Create(t.Context(), builders.Template("shared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		set := patchedSet(name, "shared", nil)
		set.Spec.Replicas = new(int32(1))
		s.makeSet(t, eve, set)
	}
	wait := func(prefix string, n, clients int) {
		t.Helper()
		var running sync.WaitGroup
		for client := range clients {
			running.Go(func() {
				for i := client; i < n; i += clients {
					claim := waiting(fmt.Sprintf("%s-%d", prefix, i))
					claim.Spec.TemplateName = "shared"
					if _, err := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
	}
	// What a stock event and a newcomer cost when few wait, and when many do.
	cost := func(name string) time.Duration {
		t.Helper()
		before := s.usage(t)
		for i := range events {
			wait(fmt.Sprintf("%s-%d", name, i), 1, 1)
			// An unused sandbox goes, and another one comes.
			list, err := s.Sandboxes(eve).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Sandboxes(eve).Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, set := range []string{"a", "b"} {
				expect.FullPool(t, s, eve, set, 1)
			}
		}
		return s.usage(t).since(t, before).cpu / events
	}
	few := cost("few")
	before := s.usage(t)
	limit := usage{cpu: lines * 8 * time.Millisecond, store: 64 * mebibyte, heap: 128 * mebibyte}
	for i := range lines / batch {
		wait(fmt.Sprintf("many-%d", i), batch, clients)
		if cpu := s.usage(t).cpu - before.cpu; cpu > limit.cpu {
			t.Fatalf("%d claims that wait cost %s of CPU, more than %s", (i+1)*batch, cpu, limit.cpu)
		}
	}
	s.usage(t).since(t, before).atMost(t, limit)
	many := cost("many-more")
	t.Logf("a stock event and a newcomer cost %s with few that wait, and %s with many", few, many)
	if limit := max(2*few, few+50*time.Millisecond); many > limit {
		t.Errorf("a stock event and a newcomer cost %s, more than %s", many, limit)
	}
	innocent.undisturbed(t)
}

// TestTooManyWaitingClaims lets more claims of one user wait than may: half of those of
// the namespace, so that others have room.
func TestTooManyWaitingClaims(t *testing.T) {
	const most = 20
	s := startServer(t, "--sync-window=20ms", fmt.Sprintf("--max-waiting-claims-per-namespace=%d", most))
	s.makeSet(t, eve, builders.Set("pool", 1))
	innocent := s.innocent(t)
	refused := 0
	for i := range 2 * most {
		// The client library would wait and try again.
		err := s.RESTClient().Post().Namespace(eve).Resource("sandboxclaims").MaxRetries(0).
			Body(waiting(fmt.Sprintf("claim-%d", i))).Do(t.Context()).Error()
		switch seconds, told := apierrors.SuggestsClientDelay(err); {
		case err == nil:
		case apierrors.IsTooManyRequests(err) && told && seconds > 0:
			refused++
		default:
			t.Errorf("refused with %v, and %d seconds to wait", err, seconds)
		}
	}
	list, err := s.SandboxClaims(eve).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != most/2 || refused != 3*most/2 {
		t.Errorf("%d claims are stored, and %d were refused, want %d and %d", len(list.Items), refused, most/2, 3*most/2)
	}
	innocent.undisturbed(t)
}

// TestLargeClaimsLeaveRoom lets a user claim 10,000 sandboxes of a small pool. A claim
// of another user for one is served after a few of them.
func TestLargeClaimsLeaveRoom(t *testing.T) {
	const few = 40
	s := startServer(t, "--sync-window=20ms")
	s.makeSet(t, eve, builders.Set("pool", 4))
	large := builders.Claim("large", 10_000)
	large.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
	if _, err := s.as(t, "eve").SandboxClaims(eve).Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	progress := func(ctx context.Context) (int, error) {
		claim, err := s.SandboxClaims(eve).Get(ctx, large.Name, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		list, err := s.Sandboxes(eve).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim.Name})
		return len(list.Items), err
	}
	for round := range 3 {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // the pool is empty
			n, err := progress(ctx)
			if err == nil && n < (round+1)*10 {
				err = fmt.Errorf("the large claim has %d", n)
			}
			return err
		})
		before, err := progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		small := builders.Claim(fmt.Sprintf("small-%d", round), 1)
		if _, err := s.as(t, "bob").SandboxClaims(eve).Create(t.Context(), small, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			claim, err := s.SandboxClaims(eve).Get(ctx, small.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			after, err := progress(ctx)
			if err != nil {
				return err
			}
			if after-before > few {
				t.Fatalf("the large claim got %d sandboxes while the small one waits: %+v", after-before, claim.Status)
			}
			if claim.Status.ClaimedReplicas == 0 {
				return fmt.Errorf("the small claim waits; the large one got %d", after-before)
			}
			t.Logf("the small claim was served after %d sandboxes of the large one", after-before)
			return nil
		})
	}
	// The server need not continue with it.
	patch := []byte(`{"spec":{"replicas":0}}`)
	if _, err := s.SandboxSets(eve).Patch(t.Context(), "pool", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWaitingCreates lets as many creates wait for sandboxes as may at a time. Another that would
// have to wait is answered at once, and creates that need not wait are not disturbed. The short form
// has a lower limit than the default, half of the changes that are handled at a time, because all have
// to be stored before the first is answered.
func TestWaitingCreates(t *testing.T) {
	const rounds = 5
	most := expect.Many(100, 2000)
	s := startServer(t, "--sync-window=30s", fmt.Sprintf("--max-waiting-creates=%d", most)) // the longest window
	innocent := s.innocent(t)
	s.makeSet(t, eve, builders.Set("pool", 0))
	for round := 1; !s.answersBeyond(t, most, func() { innocent.undisturbed(t) }); round++ {
		if round == rounds {
			t.Fatalf("%d times, one of %d creates that wait was answered before the one beyond them, or before all were stored", rounds, most)
		}
	}
}

// answersBeyond lets creates wait, and reports whether one more was answered while all of them waited. On
// a machine that is so slow that some do not wait any more by then, that shows nothing. If it was
// answered, answersBeyond calls meanwhile while the others wait.
func (s *server) answersBeyond(t *testing.T, most int, meanwhile func()) bool {
	t.Helper()
	create := func(ctx context.Context, i int) error {
		claim := builders.Claim(fmt.Sprintf("claim-%d", i), 1)
		claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Hour}
		_, err := s.SandboxClaims(eve).Create(ctx, claim, metav1.CreateOptions{})
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		leave()
		running.Wait()
		if err := s.SandboxClaims(eve).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}()
	var answered atomic.Int64
	for i := range most {
		running.Go(func() {
			if _ = create(ctx, i); ctx.Err() == nil { // an error is an answer, too
				answered.Add(1)
			}
		})
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := s.SandboxClaims(eve).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) < most && answered.Load() == 0 {
			err = fmt.Errorf("%d claims wait", len(list.Items))
		}
		return err
	})
	if answered.Load() > 0 {
		return false
	}
	if err := create(t.Context(), most); err != nil {
		t.Error(err)
	}
	if answered.Load() > 0 {
		return false
	}
	meanwhile()
	return true
}
