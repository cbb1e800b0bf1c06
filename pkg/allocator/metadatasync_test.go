// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// editDesk is a desk with a claim that is Completed and holds n sandboxes.
type editDesk struct {
	*desk
	claim *v1alpha1.SandboxClaim
	// changed are the sandboxes of each transaction that was tried, and fails what becomes
	// of the next ones.
	changed [][]string
	fails   []error
	version int
}

func newEditDesk(t *testing.T, n int) *editDesk {
	d := &editDesk{desk: newDesk(t), version: 100}
	d.claim = claimOf(func(c *v1alpha1.SandboxClaim) {
		c.Generation, c.ResourceVersion = 1, "100"
		c.Status.Phase, c.Status.ObservedGeneration = v1alpha1.SandboxClaimPhaseCompleted, 1
	})
	marks, err := plan.NewMarks(d.claim)
	if err != nil {
		t.Fatal(err)
	}
	model := &v1alpha1.Sandbox{}
	model.Namespace, model.Spec.Template = "ns", podOf()
	for i := range n {
		sb, err := marks.NewSandbox(model, nil, fmt.Sprintf("box-%04d", i), types.UID(strconv.Itoa(i)), "lock", birth)
		if err != nil {
			t.Fatal(err)
		}
		sb.ResourceVersion = "100"
		d.held = append(d.held, sb)
	}
	d.begin = func() Txn { return &slip{commit: d.commit} }
	return d
}

// commit takes a transaction in.
func (d *editDesk) commit(s *slip) error {
	names := []string{}
	for _, sb := range s.sandboxes {
		names = append(names, sb.Name)
	}
	d.changed = append(d.changed, names)
	if len(d.fails) > 0 {
		err := d.fails[0]
		d.fails = d.fails[1:]
		return err
	}
	d.version++
	s.at(d.version)
	if s.claim != nil {
		d.claim = s.claim
		d.Feeds.ClaimChanged(d.claim)
	}
	for _, sb := range s.sandboxes {
		at := slices.IndexFunc(d.held, func(was *v1alpha1.Sandbox) bool { return was.Name == sb.Name })
		d.held[at] = sb
	}
	return nil
}

// edit changes the claim's labels.
func (d *editDesk) edit(run string) {
	next := d.claim.DeepCopy()
	d.version++
	next.Generation, next.ResourceVersion = next.Generation+1, strconv.Itoa(d.version)
	next.Spec.Labels = map[string]string{"run": run}
	d.claim = next
	d.Feeds.ClaimChanged(next)
}

// sync does a step of the claim, if it is known.
func (d *editDesk) sync() (time.Duration, error) {
	return d.metadata.Reconcile(d.Context(), d.claim.UID)
}

// isKnown reports whether the claim is among those that have other metadata.
func (d *editDesk) isKnown() bool { return d.metadata.NamespaceOf(d.claim.UID) != "" }

// untilRest does steps until there is none at once, and returns when the next is.
func (d *editDesk) untilRest() time.Duration {
	d.Helper()
	for range 1000 {
		again, err := d.sync()
		if err != nil {
			d.Fatal(err)
		}
		if again != reconciler.Soon {
			return again
		}
	}
	d.Fatal("it does not come to rest")
	return 0
}

// have counts the sandboxes that have a label.
func (d *editDesk) have(run string) int {
	n := 0
	for _, sb := range d.held {
		if sb.Labels["run"] == run {
			n++
		}
	}
	return n
}

// TestEditInTransactions: as many sandboxes as fit beside the claim, each once, and then
// the claim. A claim that was not changed is not known.
func TestEditInTransactions(t *testing.T) {
	d := newEditDesk(t, 300)
	d.Feeds.ClaimChanged(d.claim)
	if d.isKnown() || len(d.finisher.unfinished.byUID) != 0 {
		t.Fatal("a claim without changes is known")
	}
	d.edit("2")
	if len(d.finisher.unfinished.byUID) != 0 {
		t.Error("it is taken for one that is not at its end")
	}
	d.untilRest()
	var sizes []int
	for _, names := range d.changed {
		sizes = append(sizes, len(names))
	}
	if !slices.Equal(sizes, []int{127, 127, 46, 0}) {
		t.Errorf("transactions have %v sandboxes", sizes)
	}
	if d.have("2") != 300 || d.claim.Status.ObservedGeneration != 2 {
		t.Errorf("%d have it, observed %d", d.have("2"), d.claim.Status.ObservedGeneration)
	}
	if d.read["held"] != 1 {
		t.Errorf("the sandboxes were read %d times", d.read["held"])
	}
}

// TestEditsAreSpaced: the first is done at once, those that follow soon at growing
// intervals, and a claim that comes to rest is forgotten.
func TestEditsAreSpaced(t *testing.T) {
	d := newEditDesk(t, 3)
	var pauses []time.Duration
	for i := range 8 {
		d.edit(strconv.Itoa(i))
		pause := d.untilRest()
		if i > 0 {
			d.clock.Step(pause / 2)
			if d.untilRest(); d.have(strconv.Itoa(i)) != 0 {
				t.Errorf("edit %d is done after %s of %s", i, pause/2, pause)
			}
			d.clock.Step(pause - pause/2)
			pause = d.untilRest()
		}
		if d.have(strconv.Itoa(i)) != 3 {
			t.Fatalf("edit %d is not done", i)
		}
		pauses = append(pauses, pause)
	}
	if last := pauses[7]; last < 20*time.Second || last > 40*time.Second || pauses[0] > 5*time.Second {
		t.Errorf("the pauses are %v", pauses)
	}
	d.clock.Step(pauses[7])
	if rest := d.untilRest(); !d.isKnown() || rest != 30*time.Second {
		t.Errorf("it is forgotten when the pause is over, or seen to after %s", rest)
	}
	d.clock.Step(30 * time.Second)
	d.untilRest()
	if d.isKnown() {
		t.Error("it is not forgotten")
	}
}

// TestEditsDuringAPass: every sandbox is written, however often the claim changes.
func TestEditsDuringAPass(t *testing.T) {
	d := newEditDesk(t, 300)
	seen := map[string]bool{}
	for i := range 12 {
		d.edit(strconv.Itoa(i))
		for range 3 {
			d.changed = nil
			again, err := d.sync()
			if err != nil {
				t.Fatal(err)
			}
			if again != reconciler.Soon {
				d.clock.Step(again)
				continue
			}
			break
		}
		for _, names := range d.changed {
			for _, name := range names {
				seen[name] = true
			}
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d sandboxes were written", len(seen))
	}
	if d.claim.Status.ObservedGeneration != 1 {
		t.Error("a change was observed that not all have")
	}
	for range 3 {
		d.clock.Step(d.untilRest() + time.Second)
	}
	if d.have("11") != 300 || d.claim.Status.ObservedGeneration != d.claim.Generation {
		t.Errorf("in the end %d have it", d.have("11"))
	}
}

// TestEditIsTheWorkOfOneServer, until the servers are others.
func TestEditIsTheWorkOfOneServer(t *testing.T) {
	d := newEditDesk(t, 2)
	mine := false
	prefers := func(string, string) bool { return mine }
	d.reconciler.SetPreference(prefers)
	d.edit("2")
	if again := d.untilRest(); again != 0 || len(d.changed) != 0 || d.read["held"] != 0 {
		t.Errorf("another's is worked at: %v", d.changed)
	}
	mine = true
	d.untilRest()
	if d.have("2") != 2 {
		t.Error("it is not taken over")
	}
	mine = false
	d.untilRest()
	if d.isKnown() {
		t.Error("one of another server is not forgotten")
	}
}

// TestEditMeetsOtherWrites: what moved is read again, and nothing is written over it.
func TestEditMeetsOtherWrites(t *testing.T) {
	d := newEditDesk(t, 2)
	d.edit("2")
	d.fails = []error{&etcdtxn.ConflictError{Modified: []etcdtxn.Modified{{Index: 1}}}}
	if _, err := d.sync(); !errors.Is(err, storage.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	d.held = d.held[:1] // the other is gone
	d.untilRest()
	if d.have("2") != 1 || d.claim.Status.ObservedGeneration != 2 || d.read["held"] != 2 {
		t.Errorf("%d have it, read %d times", d.have("2"), d.read["held"])
	}
}

// TestEditTooLargeForEtcd: less is tried, and one that does not fit alone stays as it is.
func TestEditTooLargeForEtcd(t *testing.T) {
	d := newEditDesk(t, 2)
	d.edit("2")
	d.fails = []error{etcdtxn.ErrTooLarge, etcdtxn.ErrTooLarge}
	if _, err := d.sync(); !errors.Is(err, storage.ErrReplan) {
		t.Fatalf("got %v", err)
	}
	d.untilRest()
	if d.have("2") != 1 || d.claim.Status.ObservedGeneration != 2 {
		t.Errorf("%d have it, observed %d", d.have("2"), d.claim.Status.ObservedGeneration)
	}
	if c := d.claim.Status.Conditions; len(c) != 1 || c[0].Reason != v1alpha1.ReasonInvalidMetadata {
		t.Errorf("says %+v", c)
	}
}

// TestEditOfADeletedClaim ends.
func TestEditOfADeletedClaim(t *testing.T) {
	d := newEditDesk(t, 2)
	d.edit("2")
	d.Feeds.ClaimsListed(nil, 50) // an old list
	if d.untilRest(); d.have("2") != 2 {
		t.Fatal("an old list ends it")
	}
	d.edit("3")
	d.changed = nil
	d.Feeds.ClaimsListed(nil, 1000)
	if !d.reconciler.Next(t.Context()) || d.isKnown() || len(d.changed) != 0 {
		t.Errorf("it continues: %v", d.changed)
	}
}

// TestEditOfAClaimThatIsNotBehind: one that is opened again or deleted between a change and
// its step is left alone, and the change is brought if the claim is Completed again.
func TestEditOfAClaimThatIsNotBehind(t *testing.T) {
	now := metav1.NewTime(birth.Add(time.Hour))
	for name, change := range map[string]func(*v1alpha1.SandboxClaim){
		"opened again": func(c *v1alpha1.SandboxClaim) { c.Status.Phase = v1alpha1.SandboxClaimPhaseClaiming },
		"deleted":      func(c *v1alpha1.SandboxClaim) { c.DeletionTimestamp = &now },
		"observed":     func(c *v1alpha1.SandboxClaim) { c.Status.ObservedGeneration = c.Generation + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			d := newEditDesk(t, 2)
			d.edit("2")
			d.clock.Step(d.untilRest() + time.Second) // the pause is over, and not forgotten
			d.changed = nil
			was := d.claim
			d.claim = was.DeepCopy()
			change(d.claim)
			d.edit("3")
			if again := d.untilRest(); again <= reconciler.Soon || len(d.changed) != 0 {
				t.Errorf("it is worked at: %v, and again after %s", d.changed, again)
			}
			d.claim.Status, d.claim.DeletionTimestamp = was.Status, nil
			d.edit("4")
			d.clock.Step(d.untilRest() + time.Second)
			if d.untilRest(); d.have("4") != 2 {
				t.Errorf("%d have the change in the end", d.have("4"))
			}
		})
	}
}
