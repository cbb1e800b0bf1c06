// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

var errDown = errors.New("it is away")

var birth = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// shelf answers the reads of an allocator.
type shelf struct {
	Store
	sandboxes map[string]*v1alpha1.Sandbox
	templates map[string]*v1alpha1.SandboxTemplate
	claims    map[string]*v1alpha1.SandboxClaim
	// sets are those of a list, asOf a resourceVersion, and set is the one that is read
	// by its name.
	sets []*v1alpha1.SandboxSet
	asOf uint64
	set  *v1alpha1.SandboxSet
	// held are the sandboxes of any claim; listing is called before they are returned.
	held    []*v1alpha1.Sandbox
	listing func()
	// now are the templates in etcd, where that is ahead.
	now map[string]*v1alpha1.SandboxTemplate
	// podTemplate is why the cluster does not return its inCluster; asked counts the
	// questions to it.
	podTemplate error
	inCluster   *corev1.PodTemplate
	asked       int
	// read counts reads by the name of a template, of a claim, or "held", of which
	// unreadable cannot be read.
	// looked is called after one was looked up.
	read       map[string]int
	unreadable string
	looked     func()
	begin      func() Txn
	// countedReads is how often sets or templates were read as they are in etcd.
	countedReads int
}

func (s *shelf) Sandbox(_ context.Context, _, name string, _ uint64) (*v1alpha1.Sandbox, error) {
	return s.sandboxes[name], nil
}

func (s *shelf) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	if s.read != nil {
		s.read[name]++
	}
	if name != "" && name == s.unreadable {
		return nil, errDown
	}
	found := s.templates[name]
	if s.looked != nil {
		s.looked()
	}
	return found, nil
}

func (s *shelf) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	s.asked++
	if s.podTemplate != nil {
		return nil, s.podTemplate
	}
	return s.inCluster, nil
}

func (s *shelf) TemplatesNow() podtemplate.Lookup {
	s.countedReads++
	if s.now == nil {
		return s
	}
	return &shelf{templates: s.now}
}

func (s *shelf) Begin() Txn { return s.begin() }

func (s *shelf) Set(context.Context, string, string) (*v1alpha1.SandboxSet, error) {
	return s.set, nil
}

func (s *shelf) Sets(context.Context, string) ([]*v1alpha1.SandboxSet, uint64, error) {
	s.countedReads++
	return s.sets, s.asOf, nil
}

func (s *shelf) PoolSandboxes(context.Context, string, string) ([]*v1alpha1.Sandbox, uint64, error) {
	return nil, 0, nil
}

func (s *shelf) Claim(_ context.Context, _, name string) (*v1alpha1.SandboxClaim, error) {
	if s.read != nil {
		s.read["claim "+name]++
	}
	if name == s.unreadable {
		return nil, errDown
	}
	return s.claims[name], nil
}

// CreatedClaim: a claim of the shelf was created at revision 12.
func (s *shelf) CreatedClaim(ctx context.Context, namespace, name string) (*v1alpha1.SandboxClaim, uint64, error) {
	claim, err := s.Claim(ctx, namespace, name)
	return claim, 12, err
}

func (s *shelf) SandboxesOf(context.Context, *v1alpha1.SandboxClaim) ([]*v1alpha1.Sandbox, error) {
	s.read["held"]++
	if s.unreadable == "held" {
		return nil, errDown
	}
	if s.listing != nil {
		s.listing()
	}
	return s.held, nil
}

// slip is a transaction on a shelf.
type slip struct {
	claim     *v1alpha1.SandboxClaim
	sandboxes []*v1alpha1.Sandbox
	commit    func(*slip) error
	settle    func() (written bool, err error)
	guarded   bool
	// throttleable is set by AllowThrottling.
	throttleable bool
	// user is set by ChargeUser.
	user string
}

func (s *slip) CreateClaim(_ context.Context, claim *v1alpha1.SandboxClaim) error {
	s.claim = claim
	return nil
}

func (s *slip) UpdateClaim(ctx context.Context, claim *v1alpha1.SandboxClaim) error {
	return s.CreateClaim(ctx, claim)
}

func (s *slip) ExpectClaim(*v1alpha1.SandboxClaim) error { return nil }

func (s *slip) CreateSandbox(_ context.Context, sb *v1alpha1.Sandbox) error {
	s.sandboxes = append(s.sandboxes, sb)
	return nil
}

func (s *slip) UpdateSandbox(ctx context.Context, sb *v1alpha1.Sandbox) error {
	return s.CreateSandbox(ctx, sb)
}

func (s *slip) Guard(context.Context, string, time.Time) error {
	s.guarded = true
	return nil
}

func (s *slip) Len() int { return 1 + len(s.sandboxes) }

func (s *slip) Bytes() int { return 0 }

func (s *slip) Commit(context.Context) error { return s.commit(s) }

func (s *slip) Settle(context.Context) (bool, error) { return s.settle() }

func (s *slip) Release() {}

func (s *slip) AllowThrottling() { s.throttleable = true }

func (s *slip) ChargeUser(name string) { s.user = name }

// at gives all that a slip has the resourceVersion at which it was written.
func (s *slip) at(revision int) {
	if s.claim != nil {
		s.claim.ResourceVersion = strconv.Itoa(revision)
	}
	for _, sb := range s.sandboxes {
		sb.ResourceVersion = strconv.Itoa(revision)
	}
}

// desk is an allocator over a shelf whose steps are done by the test.
type desk struct {
	*testing.T
	*shelf
	*Allocator
	clock *clocktesting.FakeClock
}

// newDesk returns a desk that knows sets, which are those of its shelf too.
func newDesk(t *testing.T, sets ...*v1alpha1.SandboxSet) *desk {
	store := &shelf{
		sandboxes: map[string]*v1alpha1.Sandbox{}, templates: map[string]*v1alpha1.SandboxTemplate{}, claims: map[string]*v1alpha1.SandboxClaim{},
		sets: sets, asOf: 9, read: map[string]int{},
	}
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a := New(Options{Store: store, Clock: clock, SyncWindow: 20 * time.Second, MaxFresh: 10000, MaxFreshBytes: 1 << 30})
	t.Cleanup(a.finisher.unfinished.due.ShutDown)
	a.Feeds.SetsListed(sets, 9)
	return &desk{t, store, a, clock}
}

// poolNamed is the source that a set of setOf is.
func poolNamed(sets ...string) []queue.Source {
	var sources []queue.Source
	for _, name := range sets {
		sources = append(sources, queue.Source{Pool: poolindex.Pool{Namespace: "ns", Name: name, UID: name}})
	}
	return sources
}

func running() v1alpha1.SandboxStatus {
	return v1alpha1.SandboxStatus{
		Phase: v1alpha1.SandboxRunning, PodInfo: v1alpha1.PodInfo{PodIP: "10.0.0.1"},
		Conditions: []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}},
	}
}

// stocks adds an available sandbox of a set's revision.
func (d *desk) stocks(name string, set *v1alpha1.SandboxSet, revision string) {
	d.Helper()
	sb, err := podtemplate.NewSandbox(set, revision, podtemplate.Inline(podOf()))
	if err != nil {
		d.Fatal(err)
	}
	sb.Name, sb.UID, sb.ResourceVersion = name, types.UID(name), "7"
	sb.Labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	sb.Status = running()
	d.sandboxes[name] = sb
	before := d.left(set.Name)
	d.Feeds.SandboxChanged(sb)
	if d.left(set.Name) != before+1 {
		d.Fatalf("%s is no candidate", name)
	}
}

// left is how many sandboxes of a set can be taken.
func (d *desk) left(set string) int { return d.stock.Index.Available(poolNamed(set)[0].Pool) }

// newAttempt is the first attempt of a claim.
func (d *desk) newAttempt(change func(*v1alpha1.SandboxClaim)) *attempt {
	return &attempt{finder: finder{supplier: d.supplier, reservation: newReservation()}, state: plan.State{Claim: claimOf(change), New: true, Start: d.clock.Now()}}
}

// nextAttempt is one of a claim that another server stored a second ago.
func (d *desk) nextAttempt(change func(*v1alpha1.SandboxClaim)) *attempt {
	claim := d.stored(change)
	d.Feeds.ClaimChanged(claim)
	u := d.finisher.unfinished.of(claim.UID)
	return &attempt{finder: finder{supplier: d.supplier, reservation: u.work.reservation, waiter: u.waiter}, state: plan.State{Claim: claim, Start: u.startTime()}}
}

// attemptOf is the first attempt of a claim, or a later one.
func (d *desk) attemptOf(isNew bool, change func(*v1alpha1.SandboxClaim)) *attempt {
	if isNew {
		return d.newAttempt(change)
	}
	return d.nextAttempt(change)
}

// stored is a claim that was stored a second ago.
func (d *desk) stored(change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := claimOf(change)
	start := metav1.NewTime(d.clock.Now().Add(-time.Second))
	claim.ResourceVersion, claim.CreationTimestamp = "5", start
	claim.Status = v1alpha1.SandboxClaimStatus{
		ObservedGeneration: claim.Generation, Phase: v1alpha1.SandboxClaimPhaseClaiming, ClaimStartTime: &start,
		Message: v1alpha1.ClaimingMessage(0, *claim.Spec.Replicas),
	}
	return claim
}

// newShortDesk returns a desk that has one sandbox of the set a, and a claim that waits for two.
func newShortDesk(t *testing.T) (*desk, *v1alpha1.SandboxClaim) {
	t.Helper()
	set := setOf("a", "py")
	d := newDesk(t, set)
	d.shelf.templates["py-"+pods] = templateOfPod("py-" + pods)
	d.stocks("one", set, pods)
	claim := d.stored(warm(2))
	d.Feeds.ClaimChanged(claim)
	return d, claim
}

// planned is the plan of an attempt.
func (d *desk) planned(t *attempt) *plan.Plan {
	d.Helper()
	p, err := t.plan(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return p
}

// looksAgain is after what time a claim looks again without news.
func (d *desk) looksAgain(t *attempt, p *plan.Plan) time.Duration {
	return d.finisher.nextCheck(&unfinishedClaim{start: claimStart{created: t.state.Start}}, t, p, 0)
}

// woken are the claims that are due, which are no longer.
func (d *desk) woken() []types.UID {
	var all []types.UID
	due := d.finisher.unfinished.due
	for due.Len() > 0 {
		uid, _ := due.Get()
		due.Done(uid)
		all = append(all, uid)
	}
	return all
}

// runs lets the allocator run in the background until the end of the test, or until stop is called.
func (d *desk) runs() (stop func()) {
	ctx, cancel := context.WithCancel(d.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.Allocator.Run(ctx)
	}()
	for !d.reconciler.IsRunning() {
		time.Sleep(time.Millisecond)
	}
	stop = sync.OnceFunc(func() { cancel(); <-stopped })
	d.Cleanup(stop)
	return stop
}

// stepUntil lets time pass until something in the background has happened.
func (d *desk) stepUntil(step time.Duration, happened func() bool) {
	d.Helper()
	for end := time.Now().Add(time.Minute); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.Fatal("it never happens")
		}
		d.clock.Step(step)
	}
}

// holding is an attempt of a claim that takes two or none, and holds the one sandbox that a
// set has.
func (d *desk) holding(set *v1alpha1.SandboxSet) *attempt {
	d.Helper()
	holder := podtemplate.RevisionName(set, pods)
	d.shelf.templates[holder] = templateOfPod(holder)
	d.stocks("one", set, pods)
	t := d.nextAttempt(func(c *v1alpha1.SandboxClaim) { warm(2)(c); c.Spec.Allocation = v1alpha1.AllocationAllOrNothing })
	t.finder.preparer = &candidates.Preparer{Templates: t.finder.supplier.templates, Stock: t.finder.supplier.stock, Claim: t.state.Claim, Now: d.clock.Now()}
	if _, err := t.finder.reserve(d.Context(), d.stock.Queue.TakeFree(poolNamed(set.Name), 1, false)); err != nil || len(t.finder.reservation.taken) != 1 {
		d.Fatal(t.finder.reservation.taken, err)
	}
	return t
}

var (
	claimOf, warm             = builders.NewClaim, builders.Warm
	podOf, withCPU            = builders.MainPod, builders.MainPodWithCPU
	revisionOf                = builders.RevisionOf
	setOf, patched, atVersion = builders.StoredSet, builders.Patched, builders.AtVersion
	smaller, atRevision       = builders.Smaller, builders.AtRevision
	// pods is the revision that a template made by templateOfPod holds.
	pods = revisionOf(podOf())
)

func templateOfPod(name string) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "6"}}
	template.Spec.Template = podOf()
	return template
}

// ofCluster is the template py, which refers to a PodTemplate of the cluster.
func ofCluster() *v1alpha1.SandboxTemplate {
	template := templateOfPod("py")
	template.Spec.Template = nil
	template.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Kind: v1alpha1.TemplateKindPodTemplate, Name: "cluster"}
	return template
}

func orFresh(c *v1alpha1.SandboxClaim) { c.Spec.CreateOnNoStock = nil }
