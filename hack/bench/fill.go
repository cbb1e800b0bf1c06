// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/embeddedetcd"
)

const (
	// setName is the name of a set that is alone in its namespace.
	setName = "pool"

	// Where the server keeps objects in etcd.
	sandboxKeys = "/sandlot/agents.kruise.io/sandboxes/"
	claimKeys   = "/sandlot/agents.kruise.io/sandboxclaims/"

	fillTxn      = 50 // copies a transaction
	fillWriters  = 4
	poolTimeout  = 3 * time.Minute
	poolInterval = 50 * time.Millisecond
)

// podTemplate is a small but real one.
const podTemplate = `{"metadata":{"labels":{"app":"bench"}},"spec":{"containers":[{
	"name":"sandbox","image":"registry.example.com/sandbox:1.0",
	"ports":[{"containerPort":8080,"name":"runtime"}],
	"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"512Mi"}}}]}}`

// pool is a SandboxSet.
type pool struct {
	namespace string
	size      int
	// set is its name; setName if it is "".
	set string
	// template is the SandboxTemplate that the set refers to, which is made with the
	// first set of it; "" for a set with a pod template of its own.
	template string
	// pods is the pod template; podTemplate if it is "".
	pods string
	// runtime gives the sandboxes an agent-runtime.
	runtime bool
}

func (p pool) name() string { return cmp.Or(p.set, setName) }

// of is the pool with another size.
func (p pool) of(size int) pool {
	p.size = size
	return p
}

// filledServer starts a server on a new folder in which each pool holds as many
// available sandboxes as it should, and is held: the set may have no sandbox
// starting (scaleStrategy.maxUnavailable 0), so nothing is refilled.
//
// To make 100,000 sandboxes through the API would take minutes. So the server
// makes the first sandbox of each pool, and while it is stopped copies of what it
// stored are written into its etcd.
//
// The server that is returned is run with more arguments, where there are any.
func filledServer(ctx context.Context, o *settings, dir string, pools []pool, more ...string) (*server, error) {
	began := time.Now()
	models, err := makeModels(ctx, o, dir, pools)
	if err != nil {
		return nil, fmt.Errorf("making the first sandboxes: %w", err)
	}
	logf("first sandboxes made after %s", since(began))
	if err := copyModels(ctx, filepath.Join(dir, "etcd"), pools, models); err != nil {
		return nil, fmt.Errorf("filling the pools: %w", err)
	}
	logf("copies written after %s", since(began))
	s, err := startServer(ctx, o.program, dir, o.connections, more...)
	if err != nil {
		return nil, err
	}
	logf("server ready after %s", since(began))
	total := 0
	for _, p := range pools {
		total += p.size
		if err := s.awaitStock(ctx, p); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if err := s.idle(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	logf("%d pools with %d sandboxes in place after %s", len(pools), total, since(began))
	return s, nil
}

func since(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }

// makeModels lets a server make one sandbox of each pool.
func makeModels(ctx context.Context, o *settings, dir string, pools []pool) (models []*v1alpha1.Sandbox, err error) {
	s, err := startServer(ctx, o.program, dir, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, p := range pools {
		model, err := s.makeModel(ctx, p)
		if err != nil {
			return nil, err
		}
		models = append(models, model)
	}
	return models, nil
}

func (s *server) makeModel(ctx context.Context, p pool) (*v1alpha1.Sandbox, error) {
	api := s.clients[0].AgentsV1alpha1()
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name()}}
	set.Spec.Replicas = new(int32(1))
	if p.runtime {
		set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: agentRuntime}}
	}
	pods := &runtime.RawExtension{Raw: []byte(cmp.Or(p.pods, podTemplate))}
	if p.template == "" {
		set.Spec.Template = pods
	} else {
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: p.template}
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.template}}
		template.Spec.Template = pods
		_, err := api.SandboxTemplates(p.namespace).Create(ctx, template, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	if _, err := api.SandboxSets(p.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := s.awaitStock(ctx, p.of(1)); err != nil {
		return nil, err
	}
	sandboxes, err := api.Sandboxes(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxPool + "=" + p.name()})
	if err != nil {
		return nil, err
	}
	if n := len(sandboxes.Items); n != 1 {
		return nil, fmt.Errorf("set %s/%s made %d sandboxes, not 1", p.namespace, p.name(), n)
	}
	if err := s.patchSet(ctx, p, map[string]any{"replicas": p.size, "scaleStrategy": hold}); err != nil {
		return nil, err
	}
	return &sandboxes.Items[0], s.awaitStock(ctx, p.of(1))
}

var (
	hold    = map[string]any{"maxUnavailable": 0}
	release = map[string]any{"maxUnavailable": nil}
)

func (s *server) patchSet(ctx context.Context, p pool, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = s.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).
		Patch(ctx, p.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// awaitStock waits until a pool has its size, and its set says so of its current
// spec.
func (s *server) awaitStock(ctx context.Context, p pool) error {
	available := int32(0)
	for deadline := time.Now().Add(poolTimeout); time.Now().Before(deadline); {
		set, err := s.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).Get(ctx, p.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		available = set.Status.AvailableReplicas
		if int(available) == p.size && set.Status.ObservedGeneration == set.Generation {
			return nil
		}
		if err := sleep(ctx, poolInterval); err != nil {
			return err
		}
	}
	return fmt.Errorf("set %s/%s has %d available sandboxes instead of %d after %s", p.namespace, p.name(), available, p.size, poolTimeout)
}

// awaitRevision waits until all sandboxes of a pool are of the spec that the set has
// now.
func (s *server) awaitRevision(ctx context.Context, p pool) error {
	for deadline := time.Now().Add(poolTimeout); time.Now().Before(deadline); {
		set, err := s.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).Get(ctx, p.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := set.Status
		if status.ObservedGeneration == set.Generation && status.Replicas == status.UpdatedAvailableReplicas {
			return nil
		}
		if err := sleep(ctx, poolInterval); err != nil {
			return err
		}
	}
	return fmt.Errorf("set %s/%s is not rolled out after %s", p.namespace, p.name(), poolTimeout)
}

// copyModels fills the pools in the etcd of a server that does not run. A copy is
// what the server stored, under another name, UID and address.
func copyModels(ctx context.Context, dir string, pools []pool, models []*v1alpha1.Sandbox) (err error) {
	etcd, client, err := startEtcd(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(), etcd.Close()) }()
	for i, p := range pools {
		model := models[i]
		copies, err := newCopier(ctx, client, func(i int) []string { return otherSandbox(model, i) }, path.Join(sandboxKeys, p.namespace, model.Name))
		if err != nil {
			return err
		}
		if err := copies.write(ctx, p.size); err != nil {
			return err
		}
	}
	return nil
}

// otherSandbox are the name, UID and address of a sandbox, each with that of its copy i.
func otherSandbox(model *v1alpha1.Sandbox, i int) []string {
	return []string{
		model.Name, fmt.Sprintf("%s%06d", model.GenerateName, i),
		string(model.UID), string(uuid.NewUUID()),
		model.Status.PodInfo.PodIP, fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&0xff, i&0xff),
	}
}

// copier writes copies of stored objects that belong together.
type copier struct {
	client *clientv3.Client
	models []*mvccpb.KeyValue
	// names are what stands in the models, each with what stands in copy i in its place.
	names func(i int) []string
}

func newCopier(ctx context.Context, client *clientv3.Client, names func(int) []string, keys ...string) (*copier, error) {
	c := &copier{client: client, names: names}
	for _, key := range keys {
		stored, err := client.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(stored.Kvs) != 1 {
			return nil, fmt.Errorf("etcd has no key %s", key)
		}
		c.models = append(c.models, stored.Kvs[0])
	}
	return c, nil
}

// write makes copies until there are as many as size, with the models.
func (c *copier) write(ctx context.Context, size int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(1) // the models are the first
	var wg sync.WaitGroup
	for range fillWriters {
		wg.Go(func() {
			for ctx.Err() == nil {
				first := int(next.Add(fillTxn)) - fillTxn
				if first >= size {
					return
				}
				var puts []clientv3.Op
				for i := first; i < min(first+fillTxn, size); i++ {
					puts = append(puts, c.puts(i)...)
				}
				if _, err := c.client.Txn(ctx).Then(puts...).Commit(); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (c *copier) puts(i int) []clientv3.Op {
	replace := strings.NewReplacer(c.names(i)...)
	var puts []clientv3.Op
	for _, model := range c.models {
		puts = append(puts, clientv3.OpPut(replace.Replace(string(model.Key)), replace.Replace(string(model.Value))))
	}
	return puts
}

// startEtcd runs an etcd in this process, set up like the server's.
func startEtcd(ctx context.Context, dir string) (*embeddedetcd.Server, *clientv3.Client, error) {
	etcd, err := embeddedetcd.Start(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connecting to etcd: %w", err), etcd.Close())
	}
	return etcd, client, nil
}
