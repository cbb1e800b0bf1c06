// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// looksOfEvents returns, by method of Feeds, how many claims an event of an object in the namespace
// quiet looks at. Three claims wait in that namespace, and others in another one.
func looksOfEvents(t *testing.T, others int) map[string]int64 {
	looks := map[string]int64{}
	for method := range reflect.TypeFor[*Feeds]().Methods() {
		if !strings.HasSuffix(method.Name, "Changed") && !strings.HasSuffix(method.Name, "Deleted") {
			continue
		}
		if method.Type.In(1).Kind() != reflect.Pointer {
			continue // a node, which belongs to no namespace and is of no claim
		}
		d := newDesk(t)
		waits := func(namespace string, n int) {
			for i := range n {
				d.Feeds.ClaimChanged(claimAt(types.UID(fmt.Sprint(namespace, i)), 5, func(c *v1alpha1.SandboxClaim) { c.Namespace = namespace }))
			}
		}
		waits("quiet", 3)
		for i := range 20 {
			waits(fmt.Sprint("other-", i), others/20)
		}
		before := setOf("set", "")
		before.Namespace = "quiet"
		d.Feeds.SetChanged(before)
		object := reflect.New(method.Type.In(1).Elem())
		if set, ok := reflect.TypeAssert[*v1alpha1.SandboxSet](object); ok {
			*set = *before.DeepCopy()
			set.Generation = 2
			set.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxesCannotStart, Message: "no such image",
			}}
			if claims.CannotStart([]*v1alpha1.SandboxSet{set}) == "" {
				t.Fatal("the set does not say why its sandboxes cannot start")
			}
		}
		meta := object.Interface().(metav1.Object)
		meta.SetNamespace("quiet")
		meta.SetName("set")
		meta.SetUID("set")
		meta.SetResourceVersion("20")
		from := d.finisher.unfinished.namespaces.looks.Load()
		method.Func.Call([]reflect.Value{reflect.ValueOf(d.Feeds), object})
		looks[method.Name] = d.finisher.unfinished.namespaces.looks.Load() - from
	}
	return looks
}

// TestEventsLookAtOneNamespace checks that an event of one namespace costs the same
// however many claims wait in others.
func TestEventsLookAtOneNamespace(t *testing.T) {
	alone, beside := looksOfEvents(t, 0), looksOfEvents(t, 1000)
	if !maps.Equal(alone, beside) {
		t.Errorf("events look at so many claims: %v, and beside 1000 of other namespaces: %v", alone, beside)
	}
	if alone["TemplateChanged"] != 3 || alone["SetChanged"] != 6 || alone["SandboxChanged"] != 0 {
		t.Errorf("events look at so many claims: %v", alone)
	}
}

// TestClaimsByNamespace checks that the claims of a namespace are those that are known,
// and that nothing is left of those that are not.
func TestClaimsByNamespace(t *testing.T) {
	d := newDesk(t)
	known := d.finisher.unfinished
	for i := range 6 {
		d.Feeds.ClaimChanged(claimAt(types.UID(fmt.Sprint(i)), 5, func(c *v1alpha1.SandboxClaim) { c.Namespace = fmt.Sprint("ns-", i%2) }))
	}
	if got := slices.Sorted(maps.Keys(known.namespaces.in("ns-1"))); !slices.Equal(got, []types.UID{"1", "3", "5"}) {
		t.Errorf("the claims of a namespace are %v", got)
	}
	known.adopt(claimAt("1", 5, func(c *v1alpha1.SandboxClaim) { c.Namespace = "ns-1" }), false)
	if u := known.of("1"); known.namespaces.in("ns-1")["1"] != u {
		t.Error("a claim that was known is another one")
	}
	all := map[types.UID]*unfinishedClaim{}
	maps.Insert(all, known.namespaces.all())
	if len(all) != 6 {
		t.Errorf("%d of 6 claims are known", len(all))
	}
	for uid, u := range all {
		u.setClaim(claimAt(uid, 6, completed, func(c *v1alpha1.SandboxClaim) { c.Namespace = u.key.Namespace }))
		known.forget(u, uid)
	}
	for i := range known.namespaces.shards {
		if left := known.namespaces.shards[i].byNamespace; len(left) > 0 {
			t.Errorf("left of claims that have ended: %v", left)
		}
	}
}

// TestNamespacesDoNotWaitForEachOther checks that a claim is added, and removed, while the
// claims of another namespace are locked and more callers wait for that lock, in whichever
// shard they are.
func TestNamespacesDoNotWaitForEachOther(t *testing.T) {
	d := newDesk(t)
	known := d.finisher.unfinished
	busy, others := known.namespaces.lock("busy"), map[*claimsShard]string{}
	var waits sync.WaitGroup
	defer waits.Wait()
	defer known.namespaces.unlock("busy", busy)
	waits.Go(func() { known.namespaces.in("busy") })
	users := func() int {
		s := known.namespaces.shard("busy")
		s.mu.Lock()
		defer s.mu.Unlock()
		return busy.users
	}
	for i := 0; len(others) < len(known.namespaces.shards); i++ {
		namespace := fmt.Sprint("other-", i)
		others[known.namespaces.shard(namespace)] = namespace
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for users() < 2 {
			runtime.Gosched()
		}
		for _, namespace := range others {
			uid := types.UID(namespace)
			known.adopt(claimAt(uid, 5, completed, func(c *v1alpha1.SandboxClaim) { c.Namespace = namespace }), false)
			known.forget(known.of(uid), uid)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a claim waits for those of another namespace")
	}
	for i := range known.namespaces.shards {
		s := &known.namespaces.shards[i]
		for _, namespace := range s.namespaces() {
			if namespace != "busy" {
				t.Errorf("left of claims that have ended: %s", namespace)
			}
		}
	}
}

// TestClaimMetrics checks that metrics count the claims that this server works on, as of
// their last steps.
func TestClaimMetrics(t *testing.T) {
	d := newDesk(t, setOf("a", "py"))
	expect := func(what string, claims, sandboxes int) {
		t.Helper()
		total := metrics.Reading{Pools: map[types.NamespacedName]metrics.PoolReading{}}
		d.readGauges(&total)
		if of := total.Pools[types.NamespacedName{Namespace: "ns", Name: "a"}]; total.Unfinished != claims || of.Claims != claims || of.Sandboxes != sandboxes {
			t.Errorf("%s: works at %d claims, and %d wait for %d sandboxes; want %d and %d", what, total.Unfinished, of.Claims, of.Sandboxes, claims, sandboxes)
		}
	}
	d.begin = func() Txn { return &slip{commit: func(s *slip) error { s.at(20); return nil }} }
	d.Feeds.ClaimChanged(d.stored(warm(3)))
	u := d.finisher.unfinished.of("claim-uid")
	step := func() {
		t.Helper()
		if _, err := d.finisher.advance(t.Context(), "claim-uid", u); err != nil {
			t.Fatal(err)
		}
	}
	expect("before its first step", 0, 0)
	d.prefers(prefersNone)
	step()
	expect("another server works on it", 0, 0)
	d.clock.Step(handOverAfter + d.finisher.ownership.syncWindow)
	d.prefers(prefersAll)
	step()
	expect("this one does", 1, 3)
	d.prefers(prefersNone)
	step()
	expect("another does again", 0, 0)
	d.prefers(prefersAll)
	step()
	d.Feeds.ClaimDeleted(u.latest())
	step()
	expect("it is gone", 0, 0)
	claim := claimNamed("new")
	opened := d.finisher.unfinished.open(t.Context(), claim, d.clock.Now(), newReservation())
	if got := d.finisher.unfinished.mine.Load(); got != 1 {
		t.Errorf("while one is created, this server works at %d", got)
	}
	d.finisher.unfinished.forget(opened, "new")
	expect("it was refused", 0, 0)
}
