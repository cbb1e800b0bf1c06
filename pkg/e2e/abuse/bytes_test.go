// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

const (
	// smallQuota is a twelfth of the quota of an install.
	smallQuota = 128 * mebibyte
	// durationVariable sets how long writers run. By default they run until they have asked to
	// write twice the quota, and requests of two of them were rejected.
	durationVariable = "SANDLOT_ABUSE_DURATION"
	// controller is a user of whose writes only creates are rejected.
	controller = "controller"
)

// filling is a server on an etcd with a small quota, and the writers that fill it.
type filling struct {
	*testing.T
	server *testutil.Server
	ctx    context.Context
	// asked is how many bytes the writers have asked to write. accepted and rejected count
	// their requests, by writer.
	asked    atomic.Int64
	mu       sync.Mutex
	accepted map[string]int
	rejected map[string]int
	running  sync.WaitGroup
}

// as returns a client that impersonates a user.
func (f *filling) as(user string) rest.Interface {
	f.Helper()
	config := rest.CopyConfig(f.server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	return client.AgentsV1alpha1().RESTClient()
}

// writer makes requests of a size, one after the other, until the test is over.
func (f *filling) writer(name string, bytes int, request func(i int) error) {
	f.running.Go(func() {
		for i := 0; f.ctx.Err() == nil; i++ {
			err := request(i)
			f.asked.Add(int64(bytes))
			switch {
			case f.ctx.Err() != nil:
				return
			case err == nil, apierrors.IsTooManyRequests(err):
				f.mu.Lock()
				if err == nil {
					f.accepted[name]++
				} else {
					f.rejected[name]++
				}
				f.mu.Unlock()
			// Large writes take long on a busy machine. Updates by k8s.io/apiserver pass on the error of etcd, as kube-apiserver does.
			case apierrors.IsTimeout(err), strings.Contains(err.Error(), rpctypes.ErrTimeout.Error()):
			default:
				f.Errorf("a write of %s: %v", name, err)
				return
			}
		}
	})
}

// deleteSandboxes deletes all sandboxes of a namespace. One request for all of them could take longer
// than a request may on a busy machine, and longer than the history is kept.
func (f *filling) deleteSandboxes(namespace string) error {
	sandboxes := f.server.Client.AgentsV1alpha1().Sandboxes(namespace)
	all, err := sandboxes.List(f.Context(), metav1.ListOptions{ResourceVersion: "0"}) // without pages
	if err != nil {
		return err
	}
	var deleting errgroup.Group
	deleting.SetLimit(8)
	for i := range all.Items {
		deleting.Go(func() error { return sandboxes.Delete(f.Context(), all.Items[i].Name, metav1.DeleteOptions{}) })
	}
	return deleting.Wait()
}

// over reports whether the writers have asked for enough, and some were rejected.
func (f *filling) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked.Load() > 2*smallQuota && len(f.rejected) >= 2
}

// report logs the counters and the size of etcd.
func (f *filling) report(etcd *clientv3.Client) {
	f.Helper()
	status, err := etcd.Status(f.Context(), etcd.Endpoints()[0])
	if err != nil {
		f.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Logf("%d MiB requested; accepted %v, rejected %v; etcd has %d MiB, %d of them in use",
		f.asked.Load()/mebibyte, f.accepted, f.rejected, status.DbSize/mebibyte, status.DbSizeInUse/mebibyte)
}

// padded returns a pod template of about this many bytes.
func padded(bytes int) string {
	variable := `{"name":"A","value":"` + strings.Repeat("x", 1000) + `"}`
	return `{"spec":{"containers":[{"name":"main","image":"busybox","env":[` +
		strings.Join(slices.Repeat([]string{variable}, max(1, bytes/len(variable))), ",") + `]}]}}`
}

// apiKeyWriter keeps changing spec.shutdownTime of 16 large sandboxes, like the E2B timeout call; a
// controller then writes each status.
func (f *filling) apiKeyWriter(name string) {
	set := f.server.Set(f, name, "pool", 0)
	names := f.server.StockWith(f, set, 0, 16, func(_ int, sb *v1alpha1.Sandbox) {
		sb.Spec.Template.Raw = []byte(padded(38 << 10))
	})
	user, system := f.as(name), f.as(controller)
	patch := func(client rest.Interface, sub, sandbox, body string) error {
		return client.Patch(types.MergePatchType).Namespace(name).Resource("sandboxes").Name(sandbox).SubResource(sub).
			MaxRetries(0).Body([]byte(body)).Do(f.ctx).Error()
	}
	start := time.Now()
	f.writer(name, 80<<10, func(i int) error {
		sandbox := names[i%len(names)]
		at := start.Add(time.Hour + time.Duration(i)*time.Second).UTC().Format(time.RFC3339)
		if err := patch(user, "", sandbox, fmt.Sprintf(`{"spec":{"shutdownTime":%q}}`, at)); err != nil {
			return err
		}
		return patch(system, "status", sandbox, fmt.Sprintf(`{"status":{"message":"ends at %s"}}`, at))
	})
}

// claimer claims 500 sandboxes of a pool with a template of 240 KB, again and again.
func (f *filling) claimer(name string) {
	large := builders.Template("large")
	large.Spec.Template.Raw = []byte(padded(240_000))
	large, err := f.server.Client.AgentsV1alpha1().SandboxTemplates(name).Create(f.Context(), large, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	pool := f.server.SetOf(f, large, "pool", "", 1000)
	f.server.Stock(f, pool, 0, 1000)
	client := f.as(name)
	f.writer(name, mebibyte, func(int) error {
		claim := testutil.Claim(pool, "", 500, func(c *v1alpha1.SandboxClaim) {
			c.GenerateName, c.Spec.CreateOnNoStock = "claim-", new(false)
		})
		return client.Post().Namespace(name).Resource("sandboxclaims").MaxRetries(0).Body(claim).Do(f.ctx).Error()
	})
}

// pool creates sandboxes of a set with a template of 240 KB, as its controller does.
func (f *filling) pool(name string) {
	set := f.server.Set(f, name, "pool", 100_000)
	client := f.as(controller)
	f.writer(name, 240_000, func(i int) error {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "pool-", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))},
		}}
		sb.Spec.Template = &runtime.RawExtension{Raw: []byte(padded(240_000))}
		return client.Post().Namespace(name).Resource("sandboxes").MaxRetries(0).Body(sb).Do(f.ctx).Error()
	})
}

// owner changes a large set again and again.
func (f *filling) owner(name string) {
	set := builders.Set("pool", 0)
	set.Spec.Template.Raw = []byte(padded(240_000))
	if _, err := f.server.Client.AgentsV1alpha1().SandboxSets(name).Create(f.Context(), set, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
	client := f.as(name)
	f.writer(name, 240_000, func(i int) error {
		body := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/change":"%d"}}}`, i)
		return client.Patch(types.MergePatchType).Namespace(name).Resource("sandboxsets").Name(set.Name).
			MaxRetries(0).Body([]byte(body)).Do(f.ctx).Error()
	})
}

// TestWritersDoNotFillEtcd lets three API keys, a claimer, the owner of a set and the controller of
// a large pool write as fast as they can, with the default limits, to an etcd with a twelfth of the usual quota. It never gets
// full, and another tenant is not throttled.
func TestWritersDoNotFillEtcd(t *testing.T) {
	config := testserver.NewTestConfig(t)
	config.QuotaBackendBytes = smallQuota
	config.CompactionBatchLimit, config.CompactionSleepInterval = embeddedetcd.CompactionBatchLimit, embeddedetcd.CompactionSleepInterval
	etcd := testserver.RunEtcd(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &filling{T: t, ctx: ctx, rejected: map[string]int{}, accepted: map[string]int{}, server: testutil.Start(t, testutil.WithEtcd(etcd.Endpoints()), testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.SyncWindow = time.Millisecond
		c.ExtraConfig.ExemptWriters = sets.New(controller)
	}))}
	duration, err := time.ParseDuration(os.Getenv(durationVariable))
	if err != nil && os.Getenv(durationVariable) != "" {
		t.Fatal(err)
	}
	const stock = 1000
	pool := f.server.Set(t, "innocent", "pool", stock)
	f.server.Stock(t, pool, 0, stock)
	for i := range 3 {
		f.apiKeyWriter(fmt.Sprint("key-", i))
	}
	f.claimer("claimer")
	f.owner("owner")
	f.pool("pool-owner")
	defer f.running.Wait()
	defer cancel()

	innocent := f.as("innocent")
	began, claims := time.Now(), 0
	for ; time.Since(began) < duration || duration == 0 && !f.over() && !t.Failed(); claims++ {
		if claims < stock {
			claim := testutil.Claim(pool, fmt.Sprint("claim-", claims), 1, nil)
			err := innocent.Post().Namespace("innocent").Resource("sandboxclaims").MaxRetries(0).Body(claim).Do(ctx).Error()
			if err != nil {
				t.Fatalf("claim %d of an innocent user after %s: %v", claims, time.Since(began), err)
			}
		}
		body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"changed": fmt.Sprint(claims)}}})
		err := innocent.Patch(types.MergePatchType).Namespace("innocent").Resource("sandboxsets").Name(pool.Name).MaxRetries(0).Body(body).Do(ctx).Error()
		if err != nil {
			t.Fatalf("a change of an innocent user after %s: %v", time.Since(began), err)
		}
		alarms, err := etcd.AlarmList(ctx)
		if err != nil || len(alarms.Alarms) > 0 {
			t.Fatalf("etcd has the alarms %v after %s, %v", alarms, time.Since(began), err)
		}
		if claims%20 == 0 {
			f.report(etcd.Client)
		}
		time.Sleep(250 * time.Millisecond) // an innocent user writes little, and nothing is proven by the pause
	}
	cancel()
	f.running.Wait()
	f.report(etcd.Client)
	t.Logf("%d claims of an innocent user in %s", claims, time.Since(began).Round(time.Second))
	for _, namespace := range []string{"claimer", "pool-owner"} {
		if err := f.deleteSandboxes(namespace); err != nil {
			t.Errorf("deleting the sandboxes of %s: %v", namespace, err)
		}
	}
}
