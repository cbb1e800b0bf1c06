// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

const (
	// setName is the name of a set that is alone in its namespace.
	setName = "pool"

	// Where the server keeps objects in etcd.
	sandboxKeys = "/sandlot/agents.kruise.io/sandboxes/"
	claimKeys   = "/sandlot/agents.kruise.io/sandboxclaims/"

	fillTxn     = 50 // copies a transaction
	fillWriters = 4
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
	// claimed gives each sandbox to a claim of its own.
	claimed bool
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
// The server that is returned is run with more arguments, where there are any.
func (t *stage) filledServer(pools []pool, more ...string) *server {
	began, dir := time.Now(), t.TempDir()
	t.fill(dir, pools)
	s := t.server(dir, t.connections, more...)
	for _, p := range pools {
		s.awaitStock(t.ctx, p)
	}
	s.idle(t.ctx)
	logf("%d pools in place after %s", len(pools), time.Since(began).Round(100*time.Millisecond))
	return s
}

// fill makes the data of a server, which does not run then. It returns a sandbox of each
// pool.
//
// To make 100,000 sandboxes through the API would take minutes. So the server
// makes the first sandbox of each pool, and while it is stopped copies of what it
// stored are written into its etcd. A copy has another name, UID and address.
func (t *stage) fill(dir string, pools []pool) (models []*v1alpha1.Sandbox) {
	claims := make([]*v1alpha1.SandboxClaim, len(pools))
	s := t.server(dir, 1)
	for i, p := range pools {
		model := s.makeModel(t.ctx, p)
		if p.claimed {
			c := newClaimer(s, p)
			claims[i] = c.create(t.ctx, 0, c.claim(1))
			c.take(claims[i], 1)
			model = got(s.clients[0].AgentsV1alpha1().Sandboxes(p.namespace).Get(t.ctx, model.Name, metav1.GetOptions{}))
		}
		models = append(models, model)
	}
	s.process.Stop(t)
	t.etcd(filepath.Join(dir, "etcd"), func(client *clientv3.Client) {
		for i, p := range pools {
			model, claim := models[i], claims[i]
			keys := []string{path.Join(sandboxKeys, p.namespace, model.Name)}
			if p.claimed {
				keys = append(keys, path.Join(claimKeys, p.namespace, claim.Name))
			}
			copyStored(t.ctx, client, p.size, keys, func(i int) []string {
				names := []string{
					model.Name, fmt.Sprintf("%s%06d", model.GenerateName, i),
					string(model.UID), string(uuid.NewUUID()),
					model.Status.PodInfo.PodIP, fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&0xff, i&0xff),
				}
				if p.claimed {
					names = append(names, claim.Name, fmt.Sprintf("claim-%06d", i), string(claim.UID), string(uuid.NewUUID()))
				}
				return names
			})
		}
	})
	return models
}

// etcd runs an etcd in this process, set up like the server's, and calls do.
func (t *stage) etcd(dir string, do func(*clientv3.Client)) {
	etcd := got(embeddedetcd.Start(t.ctx, dir))
	defer func() { check(etcd.Close()) }()
	client := got(clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()}))
	defer func() { check(client.Close()) }()
	do(client)
}

// copyStored writes copies of stored objects that belong together, until there are n with
// the first. names are what stands in these, each with what stands in copy i in its place.
func copyStored(ctx context.Context, client *clientv3.Client, n int, keys []string, names func(i int) []string) {
	var models []*mvccpb.KeyValue
	for _, key := range keys {
		stored := got(client.Get(ctx, key))
		if len(stored.Kvs) != 1 {
			check(fmt.Errorf("etcd has no key %s", key))
		}
		models = append(models, stored.Kvs[0])
	}
	inJSON, inProtobuf := new(apiserver.StorageFormat).Codec(), apiserver.NewStorageCodec()
	copied := func(replace *strings.Replacer, model []byte) string {
		if !decoding.IsProtobuf(model) {
			return replace.Replace(string(model))
		}
		text := got(runtime.Encode(inJSON, got(runtime.Decode(inJSON, model))))
		return string(got(runtime.Encode(inProtobuf, got(runtime.Decode(inJSON, []byte(replace.Replace(string(text))))))))
	}
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(fillWriters)
	for first := 1; first < n; first += fillTxn {
		writers.Go(func() error {
			var puts []clientv3.Op
			for i := first; i < min(first+fillTxn, n); i++ {
				replace := strings.NewReplacer(names(i)...)
				for _, model := range models {
					puts = append(puts, clientv3.OpPut(replace.Replace(string(model.Key)), copied(replace, model.Value)))
				}
			}
			_, err := client.Txn(ctx).Then(puts...).Commit()
			return err
		})
	}
	check(writers.Wait())
}

// createSet creates the set of a pool, and its template where it is the first that refers to
// it.
func (s *server) createSet(ctx context.Context, p pool) {
	api := s.clients[0].AgentsV1alpha1()
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name()}}
	set.Spec.Replicas = new(int32(p.size))
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
		if _, err := api.SandboxTemplates(p.namespace).Create(ctx, template, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			check(err)
		}
	}
	got(api.SandboxSets(p.namespace).Create(ctx, set, metav1.CreateOptions{}))
	s.awaitStock(ctx, p)
}

// makeModel lets the server make one sandbox of a pool, which is held then.
func (s *server) makeModel(ctx context.Context, p pool) *v1alpha1.Sandbox {
	s.createSet(ctx, p.of(1))
	sandboxes := s.sandboxes(ctx, p, v1alpha1.LabelSandboxPool+"="+p.name())
	if n := len(sandboxes); n != 1 {
		check(fmt.Errorf("set %s/%s made %d sandboxes, not 1", p.namespace, p.name(), n))
	}
	spec := map[string]any{"replicas": p.size, "scaleStrategy": hold}
	if p.claimed {
		spec["replicas"] = 1
	}
	s.patchSet(ctx, p, spec)
	s.awaitStock(ctx, p.of(1))
	return &sandboxes[0]
}

func (s *server) sandboxes(ctx context.Context, p pool, selector string) []v1alpha1.Sandbox {
	return got(s.clients[0].AgentsV1alpha1().Sandboxes(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})).Items
}

var (
	hold    = map[string]any{"maxUnavailable": 0}
	release = map[string]any{"maxUnavailable": nil}
)

func (s *server) patchSet(ctx context.Context, p pool, spec map[string]any) {
	patch := got(json.Marshal(map[string]any{"spec": spec}))
	got(s.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).Patch(ctx, p.name(), types.MergePatchType, patch, metav1.PatchOptions{}))
}

// awaitSet waits for the status of a set of its current spec.
func (s *server) awaitSet(ctx context.Context, p pool, what string, ask func(v1alpha1.SandboxSetStatus) bool) {
	await(ctx, fmt.Sprintf("set %s/%s %s", p.namespace, p.name(), what), func(ctx context.Context) bool {
		set := got(s.clients[0].AgentsV1alpha1().SandboxSets(p.namespace).Get(ctx, p.name(), metav1.GetOptions{}))
		return set.Status.ObservedGeneration == set.Generation && ask(set.Status)
	})
}

// awaitStock waits until a pool has its size.
func (s *server) awaitStock(ctx context.Context, p pool) {
	s.awaitSet(ctx, p, fmt.Sprintf("has %d available sandboxes", p.size), func(status v1alpha1.SandboxSetStatus) bool {
		return int(status.AvailableReplicas) == p.size
	})
}
