// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator/candidates"
	"github.com/sandlot-io/sandlot/pkg/allocator/metadatasync"
	"github.com/sandlot-io/sandlot/pkg/allocator/metrics"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/allocator/rebind"
	"github.com/sandlot-io/sandlot/pkg/allocator/reconciler"
	"github.com/sandlot-io/sandlot/pkg/allocator/storage"
	"github.com/sandlot-io/sandlot/pkg/allocator/throttles"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// Store is what the allocator needs of the API's storage.
type Store = storage.Store

// Txn is a transaction of a Store.
type Txn = storage.Txn

// Options set up an Allocator.
type Options struct {
	// Store is where claims and sandboxes are kept.
	Store Store
	// Clock is the time; the real one if nil.
	Clock clock.WithTicker
	// SyncWindow is how long a create call waits for its claim to complete before it
	// answers Claiming. It should end well before 60 s, where kube-apiserver cuts proxied
	// requests.
	SyncWindow time.Duration
	// MaxWaiting is how many claims of a namespace may wait for sandboxes; what comes
	// then is refused if it would have to wait. 0 is no limit.
	MaxWaiting int
	// MaxWaitingCreates is how many create calls wait at a time. Others are answered
	// Claiming at once, and their claims wait without them. 0 is no limit.
	MaxWaitingCreates int
	// MaxFresh is how many sandboxes one claim may hold at a time that were made for it,
	// where neither set nor template says.
	MaxFresh int
	// MaxFreshBytes is how many bytes these sandboxes may have, as they are stored.
	MaxFreshBytes int64
	// PodMetadata says which labels and annotations of claims reach pods where neither the
	// SandboxSet nor the SandboxTemplate says so; nil lets all through.
	PodMetadata *v1alpha1.PodMetadataPolicy
	// Admit runs admission for the sandboxes that are about to be made for a claim, which may
	// change them, as the API does with all that is created; nil lets all pass. The claim is not
	// to be changed. charge is how many of them a quota has to be charged for: the others
	// use up charges for sandboxes that were admitted earlier and never created.
	Admit func(ctx context.Context, claim *v1alpha1.SandboxClaim, made []*v1alpha1.Sandbox, charge int) error
	// SetUp sets up the agent-runtime of a sandbox that a claim holds: envVars and access
	// token, and then the volumes to mount, in order. It ends with ctx, and does what can be
	// tried again by itself. A *claims.SetupError says that this sandbox cannot be set up,
	// and any other error that it was not. Where it is nil, a claim whose sandboxes have an
	// agent-runtime ends with an error.
	SetUp func(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error
	// Seal returns what is kept on the sandboxes of a claim, encrypted, for SetUp to be
	// repeated, and the version of the key that SetUp uses for them; nil keeps nothing.
	Seal func(claim *v1alpha1.SandboxClaim) (request, keyVersion string, err error)
	// LabelDomains are the domains of the labels that claims of agent-sandbox may put on
	// their pods; validation.DefaultLabelDomain if empty.
	LabelDomains []string
	// WithoutObservations keeps claims of agent-sandbox from getting annotations that say when
	// they were seen and ready, and in which trace.
	WithoutObservations bool
}

// Allocator binds sandboxes to claims, in the call and in the background.
type Allocator struct {
	// Feeds takes in the events of the watches.
	Feeds *Feeds

	options   Options
	supplier  *supplier
	committer *committer
	// reconciler does what is left to do in the background: finisher, metadata and rebinder.
	reconciler *reconciler.Reconciler
	finisher   *finisher
	metadata   *metadatasync.Syncer
	rebinder   *rebind.Rebinder
	stock      *candidates.Stock
	lag        *metrics.Lag
	// waiting is how many create calls wait.
	waiting atomic.Int64
}

// New returns an Allocator. It serves calls at once; what is left to do in the
// background is done while Run runs.
func New(o Options) *Allocator {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.MaxWaiting = cmp.Or(o.MaxWaiting, math.MaxInt)
	o.MaxWaitingCreates = cmp.Or(o.MaxWaitingCreates, math.MaxInt)
	if len(o.LabelDomains) == 0 {
		o.LabelDomains = []string{validation.DefaultLabelDomain}
	}
	metrics.Register()
	a := &Allocator{options: o, lag: metrics.NewLag(o.Clock), reconciler: reconciler.New(o.Clock, storage.ThrottledFor)}
	store := storage.Observed(o.Store, o.Clock)
	index := poolindex.New()
	lines := queue.New(index, o.Clock)
	a.stock = candidates.NewStock(store, index, lines, o.Clock)
	a.stock.SetChanged = func(change candidates.SetChange) { a.Feeds.setChanged(change) }
	a.stock.Confirm = func(ctx context.Context, sources []queue.Source) error { return a.finisher.confirm(ctx, sources) }
	templates := candidates.NewTemplates(candidates.Options{
		MaxFresh: o.MaxFresh, MaxFreshBytes: o.MaxFreshBytes, PodMetadata: o.PodMetadata, LabelDomains: o.LabelDomains,
	}, candidates.NewLateLookup(store, o.Clock, a.reconciler.Background))
	a.supplier = &supplier{store: store, templates: templates, stock: a.stock, clock: o.Clock, admit: o.Admit, seal: o.Seal}
	a.committer = &committer{store: store, clock: o.Clock, queue: lines, sets: &a.stock.Sets, lag: a.lag, throttles: throttles.New()}
	a.finisher = newFinisher(a.reconciler, a.supplier, a.committer, o.SyncWindow, o.SetUp)
	a.metadata = metadatasync.NewSyncer(a.reconciler, a.finisher.writer)
	a.rebinder = rebind.New(a.reconciler, store, o.Clock)
	a.reconciler.Subreconcilers = []reconciler.Subreconciler{
		a.finisher,
		reconciler.NewLimited(a.rebinder, fairness.NewWorkLimit(rebind.AtOnce, a.reconciler.Queue.Add)),
		reconciler.NewLimited(a.metadata, fairness.NewWorkLimit(metadatasync.AtOnce, a.reconciler.Queue.Add)),
	}
	a.Feeds = &Feeds{stock: a.stock, unfinished: a.finisher.unfinished, metadata: a.metadata, rebinder: a.rebinder, lag: a.lag, Nodes: index.Nodes}
	return a
}

// Run finishes claims in the background until ctx is done, and returns when
// everything it started has stopped. Claims that are unfinished then are taken up by
// the next server that runs.
func (a *Allocator) Run(ctx context.Context) {
	defer metrics.Collect(a.readGauges)()
	a.reconciler.Run(ctx, a.finisher.tick)
}

// MembersChanged sets which servers, by name, allocate from the same store, self among
// them, so that each prefers a share of the sandboxes, and works on a share of the
// unfinished claims. nil is this one alone.
func (a *Allocator) MembersChanged(self string, servers []string) {
	prefers := poolindex.Share(self, servers)
	a.stock.Index.Prefer(prefers)
	a.reconciler.SetPreference(prefers)
	a.finisher.runtimes.SetMembers(self, servers)
	a.finisher.unfinished.wake()
	a.metadata.Wake()
	a.rebinder.Wake()
}

// IndexBehind is for how long the index has been waiting to hear of a sandbox that
// this server wrote; 0 if it has heard of all of them.
func (a *Allocator) IndexBehind() time.Duration { return a.lag.Behind() }

// MaxAhead is up to how many claims ahead of another are counted: a list of all claims that wait
// counts for each of them.
const MaxAhead = 100

// Ahead returns how many claims of the namespace are before a claim that waits for
// pools, up to MaxAhead, as far as this server knows. ok is false if the claim does not wait for pools.
func (a *Allocator) Ahead(claim *v1alpha1.SandboxClaim) (n int, ok bool) {
	u := a.finisher.unfinished.of(claim.UID)
	if u == nil || !claims.Unfinished(claim) || claim.Status.Waiting == nil || claim.Status.Waiting.Replicas == 0 {
		return 0, false
	}
	return u.waiter.Ahead(MaxAhead)
}

// readGauges adds what the allocator has now to the gauges.
func (a *Allocator) readGauges(total *metrics.Reading) {
	total.Behind = max(total.Behind, a.lag.Behind())
	total.Unfinished += int(a.finisher.unfinished.mine.Load())
	depths, sets := a.stock.Index.Depths(), a.stock.Sets.Replicas()
	demands := a.stock.Queue.Demands()
	for p, replicas := range sets {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		of := total.Pools[name]
		of.Available += depths[p].Available
		of.Taken += depths[p].Taken
		of.Claims += demands[p].Claims
		of.Sandboxes += demands[p].Sandboxes
		of.Replicas = replicas
		total.Pools[name] = of
	}
	for p, demand := range demands {
		if _, exists := sets[p]; !exists {
			total.WithoutSet += demand.Claims
		}
	}
}
