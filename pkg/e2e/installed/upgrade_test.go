// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/realnode"
)

// TestClaimWithKubectl: a user fills a pool, claims a sandbox and runs a command there, by kubectl alone.
func TestClaimWithKubectl(t *testing.T) {
	s := begin(t)
	const set = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata: {name: pool}
spec:
  replicas: 1
  template:
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sleep, infinity]}
`
	const claim = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxClaim
metadata: {name: mine}
spec: {templateName: pool}
`
	for _, manifest := range []string{strings.ReplaceAll(set, "IMAGE", realnode.ShellImage), claim} {
		if _, err := s.tryKubectl(t.Context(), manifest, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(manifest, "SandboxSet") {
			expect.FullPool(t, s, s.namespace, "pool", 1)
		}
	}
	s.kubectl("wait", "sandboxclaim/mine", "--for=jsonpath={.status.phase}=Completed", "--timeout=5m")
	name := s.kubectl("get", "sandboxclaim/mine", "--output=jsonpath={.status.sandboxes[*].name}")
	if got := s.kubectl("exec", name, "--", "hostname"); got != name+"\n" {
		t.Errorf("a command in the sandbox %q says %q", name, got)
	}
}

// TestRollingUpgrade: no claim and no other request fails while the pods of the API server are replaced.
func TestRollingUpgrade(t *testing.T) {
	s := begin(t)
	s.fill("pool", 2)
	claims := s.repeat(func(ctx context.Context, i int) error {
		name := fmt.Sprintf("claim-%d", i)
		if _, err := s.tryClaim(ctx, name, "pool"); err != nil {
			return err
		}
		return s.SandboxClaims(s.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	// Claims wait for new sandboxes. These do not.
	requests := s.repeat(func(ctx context.Context, i int) error {
		claim := builders.Claim(fmt.Sprintf("dry-run-%d", i), 1)
		_, err := s.SandboxClaims(s.namespace).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		time.Sleep(20 * time.Millisecond) // a rate, so that the pool is refilled too
		return err
	})
	claims.awaitMore()
	requests.awaitMore()
	s.kubectl("rollout", "restart", apiServers, "--namespace="+controlplane.Namespace)
	s.kubectl("rollout", "status", apiServers, "--namespace="+controlplane.Namespace, "--timeout=5m")
	// The last pod that is replaced serves for a while longer.
	s.eventually(func(ctx context.Context) error {
		pods, err := s.kube.CoreV1().Pods(controlplane.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sandlot-apiserver"})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("there are %d API servers", len(pods.Items))
		}
		return err
	})
	claims.awaitMore()
	requests.awaitMore()
	t.Logf("%d claims and %d other requests", claims.end(), requests.end())
}

// repetition is a call that is made again and again.
type repetition struct {
	*story
	cancel context.CancelFunc
	ended  chan struct{}
	done   atomic.Int64
	err    error // of the call that failed, once ended is closed
}

// repeat makes a call again and again until end, or until it fails.
func (s *story) repeat(call func(ctx context.Context, i int) error) *repetition {
	ctx, cancel := context.WithCancel(s.Context())
	r := &repetition{story: s, cancel: cancel, ended: make(chan struct{})}
	go func() { // ends with ctx
		defer close(r.ended)
		for i := 0; ctx.Err() == nil; i++ {
			if err := call(ctx, i); err != nil {
				if ctx.Err() == nil {
					r.err = err
				}
				return
			}
			r.done.Add(1)
		}
	}()
	return r
}

// awaitMore waits until another call has succeeded.
func (r *repetition) awaitMore() {
	r.Helper()
	before := r.done.Load()
	r.eventually(func(context.Context) error {
		select {
		case <-r.ended:
			r.Fatalf("after %d calls: %v", r.done.Load(), r.err)
		default:
		}
		if r.done.Load() == before {
			return errors.New("no more calls succeed")
		}
		return nil
	})
}

// end stops the calls, and returns how many succeeded.
func (r *repetition) end() int64 {
	r.Helper()
	r.cancel()
	<-r.ended
	if r.err != nil {
		r.Errorf("after %d calls: %v", r.done.Load(), r.err)
	}
	return r.done.Load()
}

// TestControllersFailOver: when the pod of the controllers that lead is deleted, others take over, and
// fill pools.
func TestControllersFailOver(t *testing.T) {
	s := begin(t)
	leader := func(ctx context.Context) (pod string, err error) {
		lease, err := s.kube.CoordinationV1().Leases(controlplane.Namespace).Get(ctx, "sandlot-controller-manager", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if lease.Spec.HolderIdentity != nil {
			pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		}
		if pod == "" {
			err = errors.New("no pod leads")
		}
		return pod, err
	}
	s.fill("pool", 1)
	before, err := leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl("delete", "pod", before, "--namespace="+controlplane.Namespace, "--wait=false")
	s.eventually(func(ctx context.Context) error {
		now, err := leader(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("%s leads", now)
		}
		return err
	})
	s.claim("mine", "pool")
	expect.FullPool(t, s, s.namespace, "pool", 1)
	s.kubectl("rollout", "status", controllers, "--namespace="+controlplane.Namespace, "--timeout=5m")
}
