// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// claimLabel is set by claims of a crowd on what they claim, and its value is the
// claim's name.
const claimLabel = "example.com/claim"

// crowd is a storm of claims of a set, all alike.
type crowd struct {
	namespace string
	// name begins the names of the claims.
	name     string
	clients  int
	replicas int32 // of each claim
	// set is the set; "pool" if it is empty.
	set string
	// each is how many claims a client creates, on average; 0 is until Stop.
	each int
	// pause is between two claims of a client.
	pause time.Duration
	// retries is how often the client library may repeat a create by itself.
	retries int
	// fails makes a claim fail that finds nothing, instead of waiting for it.
	fails bool
	// stock is how many sandboxes of the set are available when a claim is created: it
	// is delayed until then. So claims are no faster than the machine makes pods.
	stock int

	*load.Storm
}

// outage is a time in which creates may fail.
type outage struct {
	began, ended time.Time
}

// start lets the crowd begin. It stops with the test, if not before.
func (c *clients) start(t testing.TB, crowd *crowd) *crowd {
	t.Helper()
	crowd.Storm = &load.Storm{
		Namespace: crowd.namespace, Clients: crowd.clients, Total: crowd.clients * crowd.each, Pause: crowd.pause, Retries: crowd.retries,
		Claim: func(_, n int) *v1alpha1.SandboxClaim {
			if crowd.stock > 0 {
				c.awaitStock(t, crowd.namespace, cmp.Or(crowd.set, "pool"), crowd.stock)
			}
			claim := newCrowdClaim(fmt.Sprintf("%s-%04d", crowd.name, n), crowd.replicas)
			if crowd.set != "" {
				claim.Spec.TemplateName = crowd.set
			}
			if crowd.fails {
				claim.Spec.OnShortage = v1alpha1.ShortageFail
			}
			return claim
		},
	}
	crowd.Start(t, func() typed.AgentsV1alpha1Interface { return c })
	return crowd
}

// awaitStock waits until so many sandboxes of a set are available. It may be called on
// any goroutine, and ends with the test.
func (c *clients) awaitStock(t testing.TB, ns, set string, stock int) {
	_ = wait.PollUntilContextCancel(t.Context(), 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		available := 0
		list, err := c.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			sandbox := &list.Items[i]
			if owner := metav1.GetControllerOf(sandbox); owner != nil && owner.Name == set && v1alpha1.StateOf(sandbox, time.Now()) == v1alpha1.StateAvailable {
				available++
			}
		}
		return available >= stock, nil
	})
}

// newCrowdClaim returns a claim of warm sandboxes that waits for them longer than
// anything lasts, and is not deleted.
func newCrowdClaim(name string, replicas int32) *v1alpha1.SandboxClaim {
	claim := builders.Claim(name, replicas)
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: 2 * expect.Patience}
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
	claim.Spec.Labels = map[string]string{claimLabel: name}
	return claim
}

// checkFailures requires that no claim was refused, and that creates failed in outages
// only.
func (c *crowd) checkFailures(t testing.TB, outages ...outage) {
	t.Helper()
	for _, err := range c.Complaints() {
		t.Error(err)
	}
	for _, f := range c.Refusals() {
		t.Errorf("claim %s was refused: %v", f.Claim, f.Err)
	}
	for _, f := range c.Failures() {
		if !slices.ContainsFunc(outages, func(o outage) bool { return !f.Began.After(o.ended) && !f.Ended.Before(o.began) }) {
			t.Errorf("creating claim %s from %s to %s failed without need: %v", f.Claim,
				f.Began.Format(time.TimeOnly), f.Ended.Format(time.TimeOnly), f.Err)
		}
	}
}

// during runs what takes something out of service, and returns when that was.
func during(t testing.TB, trouble func() error) outage {
	t.Helper()
	o := outage{began: time.Now()}
	if err := trouble(); err != nil {
		t.Fatal(err)
	}
	o.ended = time.Now()
	return o
}

// letPass lets some time pass.
func letPass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// newLoad is a crowd that continues until it is stopped, at a pace that leaves a
// busy machine the time for pods.
func newLoad(namespace string) *crowd {
	return &crowd{namespace: namespace, name: "load", clients: 8, replicas: 1, pause: 200 * time.Millisecond}
}

// untilNow is the outage with a later end.
func (o outage) untilNow() outage {
	o.ended = time.Now()
	return o
}

// awaitAvailable waits until the aggregator sends requests to us, several times in
// a row: there are two servers, and it may remember that one of them was gone.
func (c *clients) awaitAvailable(t testing.TB) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		for range 10 {
			list := c.RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("sandboxclaims").MaxRetries(0).Do(ctx)
			if err := list.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}
