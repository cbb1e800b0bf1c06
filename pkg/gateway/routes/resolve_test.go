// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/gateway/routes"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2btest"
	"github.com/sandlot-io/sandlot/pkg/testutil/podstest"
)

func targetOf(sandbox *v1alpha1.Sandbox) sandboxproxy.Target {
	return sandboxproxy.Target{
		Namespace: sandbox.Namespace, Name: sandbox.Name, UID: sandbox.UID, Claim: sandbox.Labels[v1alpha1.LabelClaimName], Port: 49983,
	}
}

func TestAnAddressIsTakenFromTheAPIServerEachTime(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	table := routes.New(server.Client, routes.Options{AllowLoopback: true})
	resolves := func(want string) {
		t.Helper()
		if got, err := table.Resolve(t.Context(), targetOf(sandbox)); err != nil || got.String() != want {
			t.Errorf("got %v, %v; want %s", got, err, want)
		}
	}
	refuses := func(of sandboxproxy.Target, why string) {
		t.Helper()
		if got, err := table.Resolve(t.Context(), of); !errors.Is(err, sandboxproxy.ErrNotRunning) {
			t.Errorf("%s: got %v, %v", why, got, err)
		}
	}
	resolves(sandbox.Status.PodInfo.PodIP)
	e2btest.Pause(t, server, sandbox)
	refuses(targetOf(sandbox), "it is paused")
	e2btest.Resume(t, server, sandbox, "127.0.0.9")
	resolves("127.0.0.9")

	setInitialized := func(value metav1.ConditionStatus, reason string) {
		e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) {
			meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{Type: v1alpha1.SandboxConditionRuntimeInitialized, Status: value, Reason: reason})
		})
	}
	runtime := targetOf(sandbox)
	runtime.Port = v1alpha1.DefaultRuntimePort
	setInitialized(metav1.ConditionFalse, v1alpha1.ReasonFailed)
	if _, err := table.Resolve(t.Context(), runtime); !errors.Is(err, routes.ErrSetupFailed) {
		t.Errorf("its agent-runtime could not be set up: %v", err)
	}
	setInitialized(metav1.ConditionFalse, "Test")
	refuses(runtime, "its agent-runtime is not set up")
	if _, err := table.Resolve(t.Context(), runtime); errors.Is(err, routes.ErrSetupFailed) {
		t.Error("a setup that has not ended counts as one that has failed")
	}
	port := targetOf(sandbox)
	port.Port = 3000
	if at, err := table.Resolve(t.Context(), port); err != nil || at.RuntimeProbePath != "" {
		t.Errorf("another port: %+v, %v", at, err)
	}
	setInitialized(metav1.ConditionTrue, "Test")
	if at, err := table.Resolve(t.Context(), runtime); err != nil || at.RuntimeProbePath != "/envs" {
		t.Errorf("its agent-runtime is set up: %+v, %v", at, err)
	}

	another := targetOf(sandbox)
	another.UID = "another"
	refuses(another, "another sandbox has the name")
	another.Name = "gone"
	refuses(another, "it is gone")
	recycled := targetOf(sandbox)
	recycled.Claim = e2btest.Code()
	refuses(recycled, "another claim holds it by now")
	recycled.Claim = ""
	refuses(recycled, "no claim is named")

	strict := routes.New(server.Client, routes.Options{})
	for address, allowed := range map[string]bool{
		"127.0.0.1": false, "::1": false, "169.254.169.254": false, "fe80::1": false, "0.0.0.0": false, "::": false, "224.0.0.1": false,
		"ff02::1": false, "255.255.255.255": false, "::ffff:127.0.0.1": false, "10.1.2.3": true, "fd00::1": true, "example.com": false, "": false,
	} {
		e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Status.PodInfo.PodIP = address })
		got, err := strict.Resolve(t.Context(), targetOf(sandbox))
		if allowed != (err == nil) || (allowed && got.String() != address) || (!allowed && !errors.Is(err, sandboxproxy.ErrNotRunning)) {
			t.Errorf("%q: got %v, %v", address, got, err)
		}
	}

	e2btest.Change(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &metav1.Time{Time: time.Now().Add(-time.Hour)} })
	refuses(targetOf(sandbox), "its time is over")
}

// TestOnlySandboxesOfTheE2BAPIHaveAddresses: the gateway leads to no others.
func TestOnlySandboxesOfTheE2BAPIHaveAddresses(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	available, err := server.Client.AgentsV1alpha1().Sandboxes(set.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(available.Items) != 1 {
		t.Fatalf("%d sandboxes, %v", len(available.Items), err)
	}
	table := routes.New(server.Client, routes.Options{AllowLoopback: true})
	if got, err := table.Resolve(t.Context(), targetOf(&available.Items[0])); !errors.Is(err, sandboxproxy.ErrNotRunning) {
		t.Errorf("got %v, %v", got, err)
	}
}

// claimedWithPod returns a server and a claimed sandbox whose status says that it has a pod.
func claimedWithPod(t *testing.T) (server *testutil.Server, sandbox *v1alpha1.Sandbox) {
	t.Helper()
	server, set := stocked(t, 1)
	sandbox = e2btest.Claim(t, server, set, nil)
	e2btest.ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) {
		sb.Status.PodInfo.PodUID = "pod-uid"
		sandbox = sb.DeepCopy()
	})
	return server, sandbox
}

// TestAddressOfAnotherPod checks that an address is not used when the Pod of the sandbox does not
// have it, or cannot be read.
func TestAddressOfAnotherPod(t *testing.T) {
	t.Parallel()
	server, sandbox := claimedWithPod(t)
	cluster := podstest.Start(t)
	table := routes.New(server.Client, routes.Options{AllowLoopback: true, Pods: cluster.Client(t)})
	if got, err := table.Resolve(t.Context(), targetOf(sandbox)); !errors.Is(err, sandboxproxy.ErrNotRunning) {
		t.Errorf("the pod is gone: got %v, %v", got, err)
	}
	cluster.Set(podstest.PodOf(sandbox))
	if got, err := table.Resolve(t.Context(), targetOf(sandbox)); err != nil || got.String() != sandbox.Status.PodInfo.PodIP {
		t.Errorf("the pod is there: got %v, %v", got, err)
	}
	cluster.SetDown(true)
	if got, err := table.Resolve(t.Context(), targetOf(sandbox)); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("the pod cannot be read: got %v, %v", got, err)
	}
	cluster.SetDown(false)
	// The read of the Pod is one of those that the limit of the team is for.
	limited := routes.New(server.Client, routes.Options{AllowLoopback: true, Pods: cluster.Client(t), QPS: 1e-4, Burst: 1})
	reads := cluster.Reads()
	if got, err := limited.Resolve(t.Context(), targetOf(sandbox)); !errors.Is(err, routes.ErrUnavailable) || cluster.Reads() != reads {
		t.Errorf("beyond the limit: got %v, %v, %d reads", got, err, cluster.Reads()-reads)
	}
}

// TestAnAPIServerThatHangs: that the truth could not be found out in time says nothing of the
// sandbox.
func TestAnAPIServerThatHangs(t *testing.T) {
	t.Parallel()
	hanging := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hanging) })
	client, err := versioned.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	table := routes.New(client, routes.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	target := sandboxproxy.Target{Namespace: "team", Name: "box", UID: "uid", Claim: e2btest.Code(), Port: 80}
	if _, err := table.Resolve(ctx, target); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// TestATeamHasALimit: one team that asks too often is refused, and holds up no other.
func TestATeamHasALimit(t *testing.T) {
	t.Parallel()
	server, set := stocked(t, 1)
	sandbox := e2btest.Claim(t, server, set, nil)
	table := routes.New(server.Client, routes.Options{AllowLoopback: true, QPS: 1e-4, Burst: 2})
	for range 2 {
		if _, err := table.Resolve(t.Context(), targetOf(sandbox)); err != nil {
			t.Error(err)
		}
	}
	if _, err := table.Resolve(t.Context(), targetOf(sandbox)); !errors.Is(err, routes.ErrUnavailable) {
		t.Errorf("beyond its limit a team gets %v", err)
	}
	other := targetOf(sandbox)
	other.Namespace = "other"
	if _, err := table.Resolve(t.Context(), other); !errors.Is(err, sandboxproxy.ErrNotRunning) { // it was asked for, and is not there
		t.Errorf("another team gets %v", err)
	}
}

// TestReadsAtOnce: requests for many ports of large sandboxes of a team do not have as many answers of the
// API server in memory at a time, and do not hold up another team.
func TestReadsAtOnce(t *testing.T) {
	t.Parallel()
	const share, ports = routes.MaxAddressReads / 2, routes.MaxAddressReads * 2
	var reads atomic.Int64
	asked, goOn := make(chan struct{}, ports), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/team/") {
			reads.Add(1)
			asked <- struct{}{}
			<-goOn
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := versioned.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	table := routes.New(client, routes.Options{})
	target := sandboxproxy.Target{Namespace: "team", Name: "box", UID: "uid", Claim: e2btest.Code()}
	var asking sync.WaitGroup
	for port := range ports {
		one := target
		one.Port = port + 1
		asking.Go(func() { _, _ = table.Resolve(t.Context(), one) })
	}
	for range share {
		<-asked
	}
	other := target
	other.Namespace, other.Port = "other", 80
	if _, err := table.Resolve(t.Context(), other); !errors.Is(err, sandboxproxy.ErrNotRunning) { // it was asked for, and is not there
		t.Errorf("another team gets %v", err)
	}
	if n := reads.Load(); n > share {
		t.Errorf("%d sandboxes of a team are read at a time, want %d", n, share)
	}
	close(goOn)
	asking.Wait()
}

// TestReadsOfPods: a read of a pod holds no slot for reads of sandboxes, so others of the team are read.
func TestReadsOfPods(t *testing.T) {
	t.Parallel()
	server, sandbox := claimedWithPod(t)
	cluster := podstest.Start(t)
	cluster.Set(podstest.PodOf(sandbox))
	const requests = routes.MaxAddressReads + 1
	all := make(chan struct{})
	var reads atomic.Int64
	cluster.OnRead(func() {
		if reads.Add(1) == requests {
			close(all)
		}
		<-all
	})
	table := routes.New(server.Client, routes.Options{AllowLoopback: true, Pods: cluster.Client(t)})
	var asking sync.WaitGroup
	for port := range requests {
		target := targetOf(sandbox)
		target.Port = port + 1
		asking.Go(func() {
			if _, err := table.Resolve(t.Context(), target); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
}
