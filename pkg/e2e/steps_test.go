// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/etcdtap"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/replicas"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// TestCrashBetweenSteps kills a server with a claim at each boundary of its steps, all at
// once: some by a transaction that does not get through, some by a runtime that keeps the
// server waiting. Then a server that starts brings all of them to their end.
func TestCrashBetweenSteps(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	c.reach(t)
	c.victim.Process.Kill()
	c.end(t, c.replicas.Start(t, c.replicas.Etcd[0]))
}

// TestCrashBetweenStepsOfOneServerOfTwo: the other one has been there all the time, and
// takes over what it never heard of by anything but watches.
func TestCrashBetweenStepsOfOneServerOfTwo(t *testing.T) {
	t.Parallel()
	c := newCrash(t)
	other := c.replicas.Start(t, c.replicas.Etcd[0])
	c.reach(t)
	c.victim.Process.Kill()
	c.end(t, other)
}

// crash is a server that is killed, with a claim at each of the stages.
type crash struct {
	replicas *replicas.Replicas
	victim   *replicas.Replica
	fleet    *runtimetest.Fleet
	claims   []*staged
	// killed: from now on runtimes do what they should.
	killed atomic.Bool
	// answers are those of the creates, which most of them never get.
	answers errgroup.Group
}

// staged is a claim on its way to its stage.
type staged struct {
	*stage
	// name is that of the claim and of its set.
	name string
	// ips are the addresses of its sandboxes, by their numbers.
	ips   []string
	fleet *runtimetest.Fleet
	// written: its first transaction was seen. held: one is held.
	written, held atomic.Bool
	// called counts the calls of its runtimes.
	called atomic.Int64
}

// stockOf is how many sandboxes a set has: two for its claim, and some in reserve.
const stockOf = 9

func newCrash(t *testing.T) *crash {
	t.Helper()
	c := &crash{replicas: replicas.New(t, programs), fleet: runtimetest.Start(t)}
	byName := map[string]*staged{}
	byIP := map[string]*staged{}
	base := strings.TrimSuffix(c.fleet.CIDR(), "0.1/16")
	for i := range stages {
		s := &staged{stage: &stages[i], name: fmt.Sprintf("stage-%02d", i), fleet: c.fleet}
		for n := range 2 * stockOf { // in stock, and made for the claim
			ip := fmt.Sprintf("%s%d.%d", base, 1+i, 1+n)
			c.fleet.At(ip)
			s.ips, byIP[ip] = append(s.ips, ip), s
		}
		byName[s.name] = s
		c.claims = append(c.claims, s)
	}
	c.fleet.Script(func(rt *runtimetest.Runtime, _ runtimetest.Call) runtimetest.Action {
		s := byIP[rt.IP]
		n := s.called.Add(1)
		switch {
		case c.killed.Load() && !s.forGood:
			return runtimetest.Slow(100 * time.Millisecond) // who does not wait is caught
		case s.call == nil:
			return runtimetest.Action{}
		}
		return s.call(s, rt, n)
	})
	tap := etcdtap.Start(t, c.replicas.Etcd[0], func(txn etcdtap.Txn) etcdtap.Verdict {
		for key := range txn.Puts {
			name := path.Base(key)
			if i := strings.LastIndex(name, "-"); strings.Contains(key, "/sandboxes/") && i > 0 {
				name = name[:i]
			}
			if s := byName[name]; s != nil {
				return s.judge(txn)
			}
		}
		return etcdtap.Pass
	}, func(txn etcdtap.Txn) {
		for key := range txn.Puts {
			if s := byName[path.Base(key)]; s != nil {
				s.held.Store(true)
			}
		}
	})
	c.victim = c.replicas.Start(t, tap.URL)
	return c
}

// judge decides about a transaction of the victim. What comes after one that was held is
// held as well.
func (s *staged) judge(txn etcdtap.Txn) etcdtap.Verdict {
	if s.held.Load() {
		return etcdtap.HoldBefore
	}
	var claim string
	for key, value := range txn.Puts {
		if strings.Contains(key, "/sandboxclaims/") {
			claim = value
		}
	}
	if s.txn == nil || claim == "" {
		return etcdtap.Pass
	}
	return s.txn(claim, !s.written.Swap(true))
}

// claim is the claim of the stage.
func (s *staged) claim(set *v1alpha1.SandboxSet) *v1alpha1.SandboxClaim {
	return testutil.Claim(set, s.name, 2, func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.EnvVars = map[string]string{"CLAIM": s.name, "TOKEN": "secret of " + s.name}
		claim.Spec.CreateOnNoStock = new(false)
		claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
		claim.Spec.WaitReadyTimeout = &metav1.Duration{Duration: expect.Patience}
		claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
		if s.change != nil {
			s.change(claim)
		}
	})
}

// stock makes the set of the stage.
func (s *staged) stock(t *testing.T, r *replicas.Replica) *v1alpha1.SandboxSet {
	t.Helper()
	set := builders.Set(s.name, stockOf)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	var err error
	if s.resized {
		template := builders.Template(s.name)
		template.Spec.Template.Raw = []byte(fourCores)
		if template, err = r.Client.AgentsV1alpha1().SandboxTemplates(crashNamespace).Create(t.Context(), template, metav1.CreateOptions{}); err == nil {
			set = r.SetOf(t, template, s.name, twoCores, stockOf)
			set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		}
	} else {
		set, err = r.Client.AgentsV1alpha1().SandboxSets(crashNamespace).Create(t.Context(), set, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	n := stockOf
	if s.cold {
		n = 0
	}
	r.StockWith(t, set, 0, n, func(i int, sb *v1alpha1.Sandbox) {
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP = s.ips[i], s.ips[i]
	})
	return set
}

// reach brings each claim to its stage.
func (c *crash) reach(t *testing.T) {
	t.Helper()
	for _, s := range c.claims {
		set := s.stock(t, c.victim)
		claim := s.claim(set)
		c.answers.Go(func() error {
			_, err := c.victim.CreateOnce(context.WithoutCancel(t.Context()), crashNamespace, claim)
			return err
		})
	}
	for _, s := range c.claims {
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if err := s.reached(t, s, c.victim); err != nil {
				return fmt.Errorf("%s: %w", s.stage.name, err)
			}
			return nil
		})
	}
}

// end has a server bring all claims to their ends, and checks what is promised.
func (c *crash) end(t *testing.T, by *replicas.Replica) {
	t.Helper()
	if c.answers.Wait() == nil {
		t.Error("all creates were answered: nothing was cut off")
	}
	c.killed.Store(true)
	watching := c.watch(t, by)
	for _, s := range c.claims {
		set, err := by.Client.AgentsV1alpha1().SandboxSets(crashNamespace).Get(t.Context(), s.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The client tries again, by the same name.
		if _, err := by.CreateOnce(t.Context(), crashNamespace, s.claim(set)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: creating the claim again: %v", s.stage.name, err)
		}
		if s.after != nil {
			s.after(t, s, by)
		}
	}
	for _, s := range c.claims {
		ended := by.AwaitClaim(t, crashNamespace, s.name, testutil.Completed)
		if got := int(ended.Status.ClaimedReplicas); got != s.ends() {
			t.Errorf("%s: ends with %d sandboxes, want %d: %+v", s.stage.name, got, s.ends(), ended.Status)
		}
	}
	watching()
	c.checkSteps(t, by)
}

// ends is with how many sandboxes the claim ends.
func (s *staged) ends() int {
	if s.forGood {
		return 0
	}
	return 2
}

// patchClaim patches the claim of the stage.
func (s *staged) patchClaim(t *testing.T, by *replicas.Replica, patch string) {
	t.Helper()
	_, err := by.Client.AgentsV1alpha1().SandboxClaims(crashNamespace).
		Patch(t.Context(), s.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
}

// runtime is that of the i-th sandbox in stock.
func (s *staged) runtime(i int) *runtimetest.Runtime { return s.fleet.At(s.ips[i]) }
