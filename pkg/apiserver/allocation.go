// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/memory"
	"github.com/sandlot-io/sandlot/pkg/nodes"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
	"github.com/sandlot-io/sandlot/pkg/store/reencryption"
	sandboxrest "github.com/sandlot-io/sandlot/registry/sandbox/rest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// allocation is what runs beside the generic server: the allocator with its connection to
// etcd and the watches that keep its index, the worker for agent-runtimes, the list of
// servers, and what maintains etcd and rewrites what is stored in it.
type allocation struct {
	allocator     *allocator.Allocator
	runtimeWorker *agentruntime.Worker
	etcd          *etcdConnection
	feeds         watchFeeds
	members       *membership
	// pruner removes versions of the key for agent-runtimes; nil leaves that out.
	pruner *agentruntime.Pruner
	// maintainer measures and maintains etcd; nil leaves that out. maintainsEtcd is whether this
	// server is the one that compacts and defragments, and removes those versions.
	maintainer    *etcdquota.Maintainer
	maintainsEtcd atomic.Bool
	// nodes are those of the cluster; nil where there is none.
	nodes corev1client.NodeInterface
	// rewriter is nil where nothing says how values are encrypted.
	rewriter     *reencryption.Rewriter
	formatKeeper *formatKeeper
	running      sync.WaitGroup
}

// etcdConnection is the connection of the allocator, and where all keys begin.
type etcdConnection struct {
	*clientv3.Client
	prefix string
}

// newAllocator connects to etcd and returns the allocator, which serves once an
// allocation has synced its index, and what sets up the runtimes of its sandboxes.
func newAllocator(
	getter generic.RESTOptionsGetter, stores *sandboxrest.Stores, lookup *templateLookup, admitter *admitter,
	volumes agentruntime.VolumesGetter, pods *podaddress.Verifier, limiter *etcdquota.Limiter, extra *ExtraConfig,
) (*allocator.Allocator, *etcdConnection, *agentruntime.Setup, error) {
	claims, options, err := newResource(getter, "sandboxclaims")
	if err != nil {
		return nil, nil, nil, err
	}
	sandboxes, _, err := newResource(getter, "sandboxes")
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := newEtcdClient(options.StorageConfig.Transport)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := probeTransactions(context.Background(), client, options.StorageConfig.Prefix); err != nil {
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	recoverEmbedded(context.Background(), client, limiter, extra)
	// Before anything is written.
	if err := ensureFormat(context.Background(), client, options.StorageConfig.Prefix, extra); err != nil {
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	runtimes, err := newRuntimeSetup(context.Background(), client, options.StorageConfig, volumes, pods, stores.Sandboxes, extra)
	if err != nil {
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	registerMetrics()
	a := allocator.New(allocator.Options{
		Store: &claimStore{
			templateLookup:  lookup,
			sandboxes:       stores.Sandboxes,
			sets:            stores.SandboxSets,
			client:          etcdtxn.NewClient(extra.wrap(client)),
			guards:          etcdtxn.NewGuards(client, guardsPrefix(options.StorageConfig.Prefix)+string(uuid.NewUUID())+"/"),
			claimResource:   claims,
			sandboxResource: sandboxes,
			limiter:         limiter,
			exempt:          extra.ExemptWriters,
		},
		SyncWindow:        extra.SyncWindow,
		MaxFresh:          extra.MaxFreshSandboxes,
		MaxFreshBytes:     extra.ClaimLimits.MaxBytes,
		Admit:             admitter.admit,
		PodMetadata:       extra.podMetadata(),
		MaxWaiting:        extra.MaxWaitingClaims,
		MaxWaitingCreates: extra.MaxWaitingCreates,
		SetUp:             runtimes.SetUp,
		Seal:              runtimes.Seal,

		LabelDomains:        extra.AllowedLabelDomains,
		WithoutObservations: extra.WithoutClaimObservations,
	})
	return a, &etcdConnection{client, options.StorageConfig.Prefix}, runtimes, nil
}

// guardsPrefix is the prefix of the guards of all servers.
func guardsPrefix(storagePrefix string) string {
	return path.Join("/", storagePrefix, storekeys.Guards) + "/"
}

// leaseGuards gives a lease to the guards that servers of earlier versions left without one. It
// retries until it succeeds, because a full etcd refuses writes.
func (a *allocation) leaseGuards(ctx context.Context) {
	try := func(ctx context.Context) (bool, error) {
		err := etcdtxn.LeaseGuards(ctx, a.etcd.Client, guardsPrefix(a.etcd.prefix))
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to give a lease to guards of earlier versions, retrying")
		}
		return err == nil, nil
	}
	_ = wait.PollUntilContextCancel(ctx, time.Minute, true, try) // fails only when ctx is done
}

// newAllocation returns the allocation of an allocator that binds the claims of a
// store. The changes of sandboxes are reported to the connections of proxy too.
func newAllocation(
	a *allocator.Allocator, runtimes *agentruntime.Setup, pools *poolRuntimes, etcd *etcdConnection, stores *sandboxrest.Stores,
	claims *genericregistry.Store, proxy *sandbox.ProxyREST, mediaType string,
) *allocation {
	feeds := a.Feeds
	runtimeWorker := agentruntime.NewWorker(runtimes, changeIn(stores.Sandboxes), clock.RealClock{})
	all := &allocation{
		allocator:     a,
		runtimeWorker: runtimeWorker,
		etcd:          etcd,
		feeds: watchFeeds{
			sandboxes: &feed[*v1alpha1.Sandbox]{
				name: "sandboxes", store: stores.Sandboxes,
				listed: func(all []*v1alpha1.Sandbox, resourceVersion uint64) {
					feeds.SandboxesListed(all, resourceVersion)
					runtimeWorker.SandboxesListed(all)
					proxy.Connections.SandboxesListed(all, resourceVersion)
				},
				changed: func(sb *v1alpha1.Sandbox) {
					feeds.SandboxChanged(sb)
					runtimeWorker.SandboxChanged(sb)
					proxy.Connections.SandboxChanged(sb)
				},
				deleted: func(sb *v1alpha1.Sandbox) {
					feeds.SandboxDeleted(sb)
					runtimeWorker.SandboxDeleted(sb)
					proxy.Connections.SandboxDeleted(sb)
				},
			},
			sets: &feed[*v1alpha1.SandboxSet]{
				name: "sandboxsets", store: stores.SandboxSets,
				listed: feeds.SetsListed, changed: feeds.SetChanged, deleted: feeds.SetDeleted,
			},
			templates: &feed[*v1alpha1.SandboxTemplate]{
				name: "sandboxtemplates", store: stores.SandboxTemplates,
				listed: feeds.TemplatesListed, changed: feeds.TemplateChanged, deleted: feeds.TemplateChanged,
			},
			claims: &feed[*v1alpha1.SandboxClaim]{
				name: "sandboxclaims", store: claims,
				listed: feeds.ClaimsListed, changed: feeds.ClaimChanged, deleted: feeds.ClaimDeleted,
			},
		},
	}
	all.maintainsEtcd.Store(true)
	all.members = newMembership(etcd.Client, etcd.prefix, mediaType, func(self string, servers []string) {
		a.MembersChanged(self, servers)
		runtimeWorker.MembersChanged(self, servers)
		pools.membersChanged(servers)
		all.maintainsEtcd.Store(len(servers) == 0 || slices.Min(servers) == self)
	})
	return all
}

// addMaintainer lets the server measure and maintain etcd.
func (a *allocation) addMaintainer(limiter *etcdquota.Limiter, extra *ExtraConfig) {
	a.maintainer = newMaintainer(a.etcd.Client, limiter, extra, a.maintainsEtcd.Load)
}

// addFormatKeeper lets the server change the format in which objects are stored.
func (a *allocation) addFormatKeeper(getter generic.RESTOptionsGetter, extra *ExtraConfig) error {
	rewriter, err := newJSONRewriter(getter, a.etcd)
	if err != nil {
		return err
	}
	a.formatKeeper = &formatKeeper{
		format: extra.StorageFormat, mediaType: extra.StorageMediaType, etcd: a.etcd, servers: a.members,
		clock: extra.clock(), toJSON: rewriter.rewrite,
	}
	return nil
}

// addPruner lets the server remove versions of the key for agent-runtimes.
func (a *allocation) addPruner(keyring *agentruntime.Keyring, sandboxes *genericregistry.Store, clk clock.WithTicker) {
	a.pruner = &agentruntime.Pruner{Keyring: keyring, Use: useIn(sandboxes), Mine: a.maintainsEtcd.Load, Clock: clk}
}

func newMaintainer(etcd *clientv3.Client, limiter *etcdquota.Limiter, extra *ExtraConfig, isMaintainer func() bool) *etcdquota.Maintainer {
	return etcdquota.NewMaintainer(etcdquota.MaintainerOptions{
		Etcd: etcd, Limiter: limiter, Clock: extra.clock(), Embedded: extra.EmbeddedEtcd,
		MaintenanceEnabled: extra.MaintainEtcd || extra.EmbeddedEtcd,
		IsMaintainer:       func() bool { return extra.EmbeddedEtcd || isMaintainer() },
	})
}

// recoverEmbedded lets an embedded etcd that is full accept writes again if it can, because the rest
// of the start may have to write, and nothing else reaches that etcd.
func recoverEmbedded(ctx context.Context, etcd *clientv3.Client, limiter *etcdquota.Limiter, extra *ExtraConfig) {
	if extra.EmbeddedEtcd {
		newMaintainer(etcd, limiter, extra, nil).Recover(ctx)
	}
}

// addTo lets the server run the allocation, say when it is ready, and wait for
// its end.
func (a *allocation) addTo(server *genericapiserver.GenericAPIServer) error {
	err := server.AddPostStartHook("sandbox-allocation", func(hook genericapiserver.PostStartHookContext) error {
		a.running.Go(func() { a.load(hook) })
		a.feeds.run(hook, &a.running)
		a.running.Go(func() { a.members.run(hook) })
		a.running.Go(func() { a.leaseGuards(hook) })
		a.running.Go(func() { a.formatKeeper.run(hook) })
		a.running.Go(func() { a.allocator.Run(hook) })
		a.running.Go(func() { a.runtimeWorker.Run(hook) })
		if a.maintainer != nil {
			a.running.Go(func() { a.maintainer.Run(hook) })
		}
		if a.pruner != nil {
			a.running.Go(func() { a.pruner.Run(hook) })
		}
		if a.rewriter != nil {
			a.running.Go(func() { a.rewriter.Run(hook) })
		}
		if a.nodes != nil {
			a.running.Go(func() { nodes.Watch(hook, a.nodes, nodeFeed{a.allocator.Feeds.Nodes}) })
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the allocation's hook: %w", err)
	}
	server.RegisterDestroyFunc(func() {
		a.running.Wait() // the hook's context is done by now, or the hook never ran
		if err := a.etcd.Close(); err != nil {
			klog.ErrorS(err, "Failed to close the connection to etcd")
		}
	})
	if err := server.AddLivezChecks(0, healthz.NamedCheck("pool-index", a.alive)); err != nil {
		return fmt.Errorf("adding the liveness check: %w", err)
	}
	return server.AddReadyzChecks(healthz.NamedCheck("pool-index", a.ready))
}

const (
	// afterReady is how long after this server is ready its clients may still read all that
	// is stored, as controllers do that waited for it.
	afterReady = 5 * time.Second
	// longestLoad is how long a server that never gets ready keeps more garbage for that.
	longestLoad = 5 * time.Minute
)

// load keeps memory as for a load, until everything is read.
func (a *allocation) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestLoad)
	defer cancel()
	defer memory.Load()()
	isReady := func(context.Context) (bool, error) { return a.ready(nil) == nil, nil }
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, isReady) != nil {
		return
	}
	select {
	case <-time.After(afterReady):
	case <-ctx.Done():
	}
}

// stalled is how long the watch of sandboxes may owe what this server has
// written. A watch that breaks begins again by itself; one that hangs does not.
const stalled = 2 * time.Minute

// alive fails when the watch that feeds the index hangs.
func (a *allocation) alive(*http.Request) error {
	if behind := a.allocator.IndexBehind(); behind > stalled {
		return fmt.Errorf("the watch of sandboxes has been behind the writes of this server for %s", behind.Round(time.Second))
	}
	return nil
}

// ready fails until the index knows every sandbox and set, and the unfinished
// claims are known.
func (a *allocation) ready(*http.Request) error { return a.feeds.ready() }
