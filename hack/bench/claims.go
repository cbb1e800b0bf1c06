// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// names numbers all objects of a run.
var names atomic.Int64

func newName(prefix string) string { return fmt.Sprintf("%s-%07d", prefix, names.Add(1)) }

// claimer creates claims on one pool, or on the template of a pool, and remembers what they were answered.
type claimer struct {
	server *server
	pool   pool
	// change, if set, makes the claims others than the smallest.
	change func(*v1alpha1.SandboxClaim)

	mu sync.Mutex
	// owners are the UIDs of claims by the sandboxes that they were given.
	owners map[string]string
	claims int
	failed int
	bytes  int // of the first claim's answer
}

func newClaimer(s *server, p pool) *claimer {
	return &claimer{server: s, pool: p, owners: map[string]string{}}
}

// arm creates count claims of so many sandboxes a round.
func (c *claimer) arm(name string, count, replicas int) arm {
	return arm{name: name, count: count, reset: c.reset, cpu: c.server.cpu, do: func(ctx context.Context, client int) error {
		answer, err := c.create(ctx, client, c.claim(replicas))
		if err != nil {
			return err
		}
		return c.take(answer, replicas)
	}}
}

// claim is a new claim of so many sandboxes.
func (c *claimer) claim(replicas int) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.pool.namespace, Name: newName("claim")}}
	if c.pool.template != "" {
		claim.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: c.pool.template}
	} else {
		claim.Spec.TemplateName = c.pool.name()
	}
	claim.Spec.Replicas = new(int32(replicas))
	// An empty pool is an error here, not something to wait for.
	claim.Spec.OnShortage = v1alpha1.ShortageFail
	if c.change != nil {
		c.change(claim)
	}
	return claim
}

func (c *claimer) create(ctx context.Context, client int, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
	return c.server.client(client).AgentsV1alpha1().SandboxClaims(c.pool.namespace).Create(ctx, claim, metav1.CreateOptions{})
}

// take judges the answer to a claim.
func (c *claimer) take(claim *v1alpha1.SandboxClaim, replicas int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims++
	ok := claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted &&
		int(claim.Status.ClaimedReplicas) == replicas && len(claim.Status.Sandboxes) == replicas
	for _, sandbox := range claim.Status.Sandboxes {
		if other, taken := c.owners[sandbox.Name]; taken {
			logf("sandbox %s is bound to claims %s and %s", sandbox.Name, other, claim.UID)
			ok = false
		}
		c.owners[sandbox.Name] = string(claim.UID)
	}
	if !ok {
		c.failed++
	}
	if c.bytes == 0 {
		var err error
		c.bytes, err = sizeOf(claim)
		return err
	}
	return nil
}

// reset leaves the claims so far out of the count, but not those that failed.
func (c *claimer) reset() { c.claims = 0 }

// verify compares the answers with what is stored, and counts what differs.
func (c *claimer) verify(ctx context.Context) error {
	sandboxes, err := c.server.clients[0].AgentsV1alpha1().Sandboxes(c.pool.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxClaimed + "=" + v1alpha1.ClaimedTrue})
	if err != nil {
		return fmt.Errorf("checking the sandboxes of claims: %w", err)
	}
	for i := range sandboxes.Items {
		sandbox := &sandboxes.Items[i]
		if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; c.owners[sandbox.Name] != owner {
			logf("sandbox %s is stored as claim %q's, but was given to %q", sandbox.Name, owner, c.owners[sandbox.Name])
			c.failed++
		}
	}
	if stored, given := len(sandboxes.Items), len(c.owners); stored < given {
		logf("%d sandboxes are stored as claimed, but %d were given", stored, given)
		c.failed += given - stored
	}
	return nil
}

// plain creates SandboxTemplates: objects that no one does anything with.
type plain struct {
	server    *server
	namespace string
	template  string
	bytes     int // of a template as answered
}

// newPlain finds the pod template with which a SandboxTemplate becomes as large
// as a claim, both as the server answers them.
func newPlain(ctx context.Context, s *server, p pool, claimBytes int) (*plain, error) {
	pl := &plain{server: s, namespace: p.namespace, template: paddedTemplate(0)}
	if err := pl.measure(ctx); err != nil {
		return nil, err
	}
	pl.template = paddedTemplate(claimBytes - pl.bytes)
	return pl, pl.measure(ctx)
}

func (pl *plain) measure(ctx context.Context) error {
	answer, err := pl.create(ctx, 0)
	if err == nil {
		pl.bytes, err = sizeOf(answer)
	}
	return err
}

// paddedTemplate is podTemplate with a variable of so many letters.
func paddedTemplate(padding int) string {
	env := fmt.Sprintf(`"env":[{"name":"PADDING","value":%q}],"ports"`, strings.Repeat("x", max(padding, 0)))
	return strings.Replace(podTemplate, `"ports"`, env, 1)
}

func (pl *plain) create(ctx context.Context, client int) (*v1alpha1.SandboxTemplate, error) {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: pl.namespace, Name: newName("plain")}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(pl.template)}
	return pl.server.client(client).AgentsV1alpha1().SandboxTemplates(pl.namespace).
		Create(ctx, template, metav1.CreateOptions{})
}

// arm creates count templates a round.
func (pl *plain) arm(count int) arm {
	return arm{name: "plain", count: count, cpu: pl.server.cpu, do: func(ctx context.Context, client int) error {
		_, err := pl.create(ctx, client)
		return err
	}}
}

func sizeOf(object any) (int, error) {
	data, err := json.Marshal(object)
	return len(data), err
}
