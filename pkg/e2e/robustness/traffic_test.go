// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	// callTimeout bounds each call of a client.
	callTimeout = 3 * time.Second
	// clientsOf is how many clients a namespace has, and poolSize how many sandboxes its pool.
	clientsOf = 4
	poolSize  = 10
)

// namespaces have a pool each.
var namespaces = []string{"red", "green", "blue"}

// traffic is clients that claim sandboxes, read, release and delete.
type traffic struct {
	servers []*server
	history *history
	now     func() time.Duration
	running sync.WaitGroup
	end     context.CancelFunc

	mu sync.Mutex
	// known are names of claims that were created or refused, by namespace.
	known map[string][]string
}

// client is one of the clients.
type client struct {
	*traffic
	number    int
	namespace string
	chance    *rand.Rand
	attempts  int
	// avoided is until when the client prefers other servers, because one has not answered.
	avoided map[int]time.Duration
	// mine are the claims of the client that it did not delete, as it saw them last.
	mine []*v1alpha1.SandboxClaim
}

// makePools makes the pool of each namespace, and waits until it is full.
func makePools(t *testing.T, s *server) {
	t.Helper()
	for _, namespace := range namespaces {
		expect.FilledPool(t, s.Client.AgentsV1alpha1(), namespace, poolSize)
	}
}

// startTraffic starts the clients. They stop with the test, if not before.
func startTraffic(t *testing.T, seed uint64, servers []*server, now func() time.Duration) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	all := &traffic{servers: servers, history: &history{}, now: now, end: cancel, known: map[string][]string{}}
	t.Cleanup(all.stop)
	for i := range clientsOf * len(namespaces) {
		c := &client{
			traffic: all, number: i, namespace: namespaces[i%len(namespaces)],
			chance: rand.New(rand.NewPCG(seed, uint64(i))), avoided: map[int]time.Duration{},
		}
		all.running.Go(func() {
			for ctx.Err() == nil {
				c.act(t.Context())
				pause(ctx, time.Duration(c.chance.IntN(40))*time.Millisecond)
			}
		})
	}
	return all
}

// stop returns when all clients have ended their calls.
func (t *traffic) stop() {
	t.end()
	t.running.Wait()
}

// act does one of the things that clients do.
func (c *client) act(ctx context.Context) {
	switch n := c.chance.IntN(20); {
	case n < 11 && len(c.mine) < 6:
		c.claim(ctx)
	case n < 13:
		c.get(ctx, c.anyName())
	case len(c.mine) == 0:
	case n < 16:
		c.release(ctx, c.mine[c.chance.IntN(len(c.mine))])
	default:
		c.delete(ctx, c.chance.IntN(len(c.mine)))
	}
}

// anyName is that of a claim of any client of the namespace.
func (c *client) anyName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[c.namespace]
	if len(known) == 0 {
		return "none"
	}
	recent := known[max(0, len(known)-30):]
	return recent[c.chance.IntN(len(recent))]
}

func (c *client) know(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[c.namespace] = append(c.known[c.namespace], name)
}

// newClaim returns one of the kinds of claims that there are.
func (c *client) newClaim() *v1alpha1.SandboxClaim {
	claim := builders.Claim(fmt.Sprintf("c%d-%d", c.number, c.attempts), 1)
	claim.Namespace = c.namespace
	claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
	claim.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Duration(1+c.chance.IntN(12)) * time.Second}
	switch n := c.chance.IntN(16); {
	case n < 6:
	case n < 9:
		claim.Spec.Replicas = new(2 + c.chance.Int32N(5))
	case n < 12:
		claim.Spec.Replicas, claim.Spec.Allocation = new(2+c.chance.Int32N(4)), v1alpha1.AllocationAllOrNothing
	case n < 14:
		claim.Spec.Replicas, claim.Spec.OnShortage = new(1+c.chance.Int32N(8)), v1alpha1.ShortageFail
	default: // sandboxes are made for it
		claim.Spec.Replicas, claim.Spec.CreateOnNoStock, claim.Spec.WarmPool = new(1+c.chance.Int32N(2)), new(true), v1alpha1.WarmPoolNone
	}
	if c.chance.IntN(6) == 0 {
		claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	}
	return claim
}

// claim creates a claim. If it does not learn what became of it, it tries again by the same name.
func (c *client) claim(ctx context.Context) {
	claim := c.newClaim()
	c.know(claim.Name)
	dryRun := c.chance.IntN(12) == 0
	for range 10 {
		timeout := callTimeout
		if c.chance.IntN(8) == 0 { // the client leaves
			timeout = time.Duration(1+c.chance.IntN(30)) * time.Millisecond
		}
		done, created := c.create(ctx, claim, timeout, dryRun)
		if dryRun {
			return
		}
		if created != nil {
			c.mine = append(c.mine, created)
			if c.chance.IntN(2) == 0 {
				c.readBack(ctx, created)
			}
			return
		}
		if done || c.chance.IntN(6) == 0 {
			return
		}
	}
}

// create sends one create, and returns the claim if there is an answer with it. done: it is known what became of it.
func (c *client) create(ctx context.Context, claim *v1alpha1.SandboxClaim, timeout time.Duration, dryRun bool) (done bool, created *v1alpha1.SandboxClaim) {
	i := c.anyServer()
	c.attempts++
	op := &call{
		Client: c.number, Server: i, Verb: createClaim, Namespace: c.namespace, Name: claim.Name,
		Attempt:  fmt.Sprintf("%d-%d", c.number, c.attempts),
		Replicas: int(*claim.Spec.Replicas), AllOrNothing: claim.Spec.Allocation == v1alpha1.AllocationAllOrNothing, DryRun: dryRun,
	}
	sent := claim.DeepCopy()
	sent.Annotations = map[string]string{attemptAnnotation: op.Attempt}
	var options []string
	if dryRun {
		options = []string{metav1.DryRunAll}
	}
	err := c.do(ctx, op, timeout, func(ctx context.Context) (err error) {
		created, err = c.servers[i].CreateOnce(ctx, c.namespace, sent, options...)
		return err
	})
	if err == nil {
		op.saw(created)
		c.history.add(op)
		return true, created
	}
	if isUnsent(err) {
		return false, nil
	}
	op.Outcome = refusalOf(err)
	c.history.add(op)
	if op.Outcome == exists && !dryRun {
		found := c.get(ctx, claim.Name)
		return found != nil, found
	}
	return op.Outcome == refused, nil
}

// do makes a call and notes when, and its error.
func (c *client) do(ctx context.Context, op *call, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	op.Start = c.now()
	err := do(ctx)
	op.End = c.now()
	op.Outcome = succeeded
	if err != nil {
		op.Error, op.Outcome = err.Error(), unknown
	}
	if op.End-op.Start > time.Second {
		c.avoided[op.Server] = op.End + 5*time.Second
	}
	if isUnsent(err) {
		c.avoided[op.Server] = op.End + time.Second/2
		pause(ctx, 10*time.Millisecond)
	}
	return err
}

// isUnsent reports whether a call has not been sent, because no server listens.
func isUnsent(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// anyServer returns a server that answers, as far as the client knows.
func (c *client) anyServer() int {
	i := c.chance.IntN(len(c.servers))
	for range c.servers {
		if c.avoided[i] < c.now() {
			break
		}
		i = (i + 1) % len(c.servers)
	}
	return i
}

// saw notes the claim of an answer.
func (c *call) saw(claim *v1alpha1.SandboxClaim) {
	c.UID, c.Sandboxes = claim.UID, listedBy(claim)
	c.Revision, _ = strconv.ParseInt(claim.ResourceVersion, 10, 64)
}

// refusalOf returns what the error of a create says. Each answer of a server but a timeout says that nothing
// was stored.
func refusalOf(err error) outcome {
	status := apierrors.APIStatus(nil)
	switch {
	case !errors.As(err, &status), status.Status().Code == 0, status.Status().Code == http.StatusGatewayTimeout:
		return unknown
	case apierrors.IsAlreadyExists(err):
		return exists
	}
	return refused
}

// get reads a claim of the namespace, and returns it if it is one of the client's.
func (c *client) get(ctx context.Context, name string) *v1alpha1.SandboxClaim {
	i := c.anyServer()
	op := &call{Client: c.number, Server: i, Verb: getClaim, Namespace: c.namespace, Name: name}
	var claim *v1alpha1.SandboxClaim
	err := c.do(ctx, op, callTimeout, func(ctx context.Context) (err error) {
		claim, err = c.servers[i].Client.AgentsV1alpha1().SandboxClaims(c.namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch {
	case err == nil:
		op.saw(claim)
		for n, mine := range c.mine {
			if mine.UID == claim.UID {
				c.mine[n] = claim
			}
		}
	case apierrors.IsNotFound(err):
		op.Outcome = notFound
	}
	c.history.add(op)
	if err != nil {
		return nil
	}
	return claim
}

// delete deletes a claim of the client's, until it is known to be gone.
func (c *client) delete(ctx context.Context, n int) {
	claim := c.mine[n]
	c.mine = slices.Delete(c.mine, n, n+1)
	for range 10 {
		i := c.anyServer()
		op := &call{Client: c.number, Server: i, Verb: deleteClaim, Namespace: c.namespace, Name: claim.Name, UID: claim.UID}
		err := c.do(ctx, op, callTimeout, func(ctx context.Context) error {
			return c.servers[i].Client.AgentsV1alpha1().SandboxClaims(c.namespace).Delete(ctx, claim.Name, *metav1.NewPreconditionDeleteOptions(string(claim.UID)))
		})
		if apierrors.IsNotFound(err) {
			op.Outcome = notFound
		}
		c.history.add(op)
		if op.Outcome != unknown {
			return
		}
	}
}

// release deletes a sandbox of a claim.
func (c *client) release(ctx context.Context, claim *v1alpha1.SandboxClaim) {
	if len(claim.Status.Sandboxes) == 0 || claim.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		return
	}
	sandbox := claim.Status.Sandboxes[c.chance.IntN(len(claim.Status.Sandboxes))]
	i := c.anyServer()
	op := &call{Client: c.number, Server: i, Verb: releaseSandbox, Namespace: c.namespace, Name: sandbox.Name, UID: sandbox.UID}
	err := c.do(ctx, op, callTimeout, func(ctx context.Context) error {
		return c.servers[i].Client.AgentsV1alpha1().Sandboxes(c.namespace).Delete(ctx, sandbox.Name, *metav1.NewPreconditionDeleteOptions(string(sandbox.UID)))
	})
	if apierrors.IsNotFound(err) {
		op.Outcome = notFound
	}
	c.history.add(op)
}

// readBack reads a claim that was answered, and its sandboxes, at every server, as of the revision of the answer.
func (c *client) readBack(ctx context.Context, claim *v1alpha1.SandboxClaim) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at, want := claim.ResourceVersion, listedBy(claim)
	for i, s := range c.servers {
		agents := s.Client.AgentsV1alpha1()
		found, err := agents.SandboxClaims(c.namespace).Get(ctx, claim.Name, metav1.GetOptions{ResourceVersion: at})
		switch {
		case apierrors.IsNotFound(err):
			c.history.problem("server %d does not find claim %s/%s (%s), which was answered at revision %s", i, c.namespace, claim.Name, claim.UID, at)
			continue
		case err != nil:
			continue // it does not answer
		}
		seen := listedBy(found)
		if found.UID != claim.UID || slices.ContainsFunc(want, func(uid types.UID) bool { return !slices.Contains(seen, uid) }) {
			c.history.problem("server %d returns claim %s/%s (%s) with sandboxes %v, and it was answered at revision %s as %s with %v",
				i, c.namespace, claim.Name, found.UID, seen, at, claim.UID, want)
		}
		list, err := agents.Sandboxes(c.namespace).List(ctx, metav1.ListOptions{
			LabelSelector: v1alpha1.LabelClaimName + "=" + claim.Name, ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			continue
		}
		for _, uid := range want {
			if !slices.ContainsFunc(list.Items, func(sb v1alpha1.Sandbox) bool { return sb.UID == uid && holderOf(&sb) == string(claim.UID) }) {
				c.history.problem("server %d lists no sandbox %s of claim %s/%s (%s), as of revision %s", i, uid, c.namespace, claim.Name, claim.UID, at)
			}
		}
	}
}
