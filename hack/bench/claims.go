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
	"k8s.io/apimachinery/pkg/types"

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
	// claims and failed count. A claim fails if it is not Completed with exactly the
	// sandboxes that it asked for, each of them its own in the store as well.
	claims, failed int
	bytes          int // of the first claim's answer
}

func newClaimer(s *server, p pool) *claimer {
	return &claimer{server: s, pool: p, owners: map[string]string{}}
}

// arm creates count claims of so many sandboxes a round.
func (c *claimer) arm(name string, count, replicas int) arm {
	return c.armOf(name, count, func(ctx context.Context, client int) {
		c.take(c.create(ctx, client, c.claim(replicas)), replicas)
	})
}

func (c *claimer) armOf(name string, count int, do func(ctx context.Context, client int)) arm {
	return arm{name: name, count: count, reset: c.reset, cpu: c.server.cpu, profiled: c.server, do: do}
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

func (c *claimer) create(ctx context.Context, client int, claim *v1alpha1.SandboxClaim) *v1alpha1.SandboxClaim {
	return got(c.server.client(client).AgentsV1alpha1().SandboxClaims(c.pool.namespace).Create(ctx, claim, metav1.CreateOptions{}))
}

// take judges the answer to a claim.
func (c *claimer) take(claim *v1alpha1.SandboxClaim, replicas int) {
	var given []string
	for _, sandbox := range claim.Status.Sandboxes {
		given = append(given, sandbox.Name)
	}
	c.taken(claim.UID, given, claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted &&
		int(claim.Status.ClaimedReplicas) == replicas && len(given) == replicas)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes == 0 {
		c.bytes = sizeOf(claim)
	}
}

func (c *claimer) taken(claim types.UID, sandboxes []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims++
	for _, sandbox := range sandboxes {
		if other, taken := c.owners[sandbox]; taken {
			logf("sandbox %s is bound to claims %s and %s", sandbox, other, claim)
			ok = false
		}
		c.owners[sandbox] = string(claim)
	}
	if !ok {
		c.failed++
	}
}

// reset leaves the claims so far out of the count, but not those that failed.
func (c *claimer) reset() { c.claims = 0 }

// verify compares the answers with what is stored, and counts what differs.
func (c *claimer) verify(ctx context.Context) {
	sandboxes := c.server.sandboxes(ctx, c.pool, v1alpha1.LabelSandboxClaimed+"="+v1alpha1.ClaimedTrue)
	for i := range sandboxes {
		sandbox := &sandboxes[i]
		if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; c.owners[sandbox.Name] != owner {
			logf("sandbox %s is stored as claim %q's, but was given to %q", sandbox.Name, owner, c.owners[sandbox.Name])
			c.failed++
		}
	}
	if stored, given := len(sandboxes), len(c.owners); stored < given {
		logf("%d sandboxes are stored as claimed, but %d were given", stored, given)
		c.failed += given - stored
	}
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
func newPlain(ctx context.Context, s *server, p pool, claimBytes int) *plain {
	pl := &plain{server: s, namespace: p.namespace, template: paddedTemplate(0)}
	pl.template = paddedTemplate(claimBytes - sizeOf(pl.create(ctx, 0)))
	pl.bytes = sizeOf(pl.create(ctx, 0))
	return pl
}

// paddedTemplate is podTemplate with a variable of so many letters.
func paddedTemplate(padding int) string {
	env := fmt.Sprintf(`"env":[{"name":"PADDING","value":%q}],"ports"`, strings.Repeat("x", max(padding, 0)))
	return strings.Replace(podTemplate, `"ports"`, env, 1)
}

func (pl *plain) create(ctx context.Context, client int) *v1alpha1.SandboxTemplate {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: pl.namespace, Name: newName("plain")}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(pl.template)}
	return got(pl.server.client(client).AgentsV1alpha1().SandboxTemplates(pl.namespace).Create(ctx, template, metav1.CreateOptions{}))
}

// arm creates count templates a round.
func (pl *plain) arm(count int) arm {
	return arm{name: "plain", count: count, cpu: pl.server.cpu, profiled: pl.server, do: func(ctx context.Context, client int) { pl.create(ctx, client) }}
}

func sizeOf(object any) int { return len(got(json.Marshal(object))) }

// fixture is what a case works with that compares claims with plain creates.
type fixture struct {
	*stage
	result  *result
	claimer *claimer
	plain   *plain
}

// fixture makes one claim, to learn how large plain objects are to be.
func (t *stage) fixture(r *result, s *server, p pool) *fixture {
	f := &fixture{stage: t, result: r, claimer: newClaimer(s, p)}
	f.claimer.arm("", 1, 1).do(t.ctx, 0)
	f.plain = newPlain(t.ctx, s, p, f.claimer.bytes)
	return f
}

// compareClaims runs the arms and returns what each did. The first is of claims and the
// second of plain creates: these two make the result. more claimers made claims too.
func (f *fixture) compareClaims(rounds int, arms []arm, more ...*claimer) []series {
	all := f.compare(f.result.Case, f.result.Clients, rounds, arms...)
	var claims, failed int
	for _, c := range append(more, f.claimer) {
		c.verify(f.ctx)
		claims += c.claims
		failed += c.failed
	}
	claim, plain, r := all[0], all[1], f.result
	r.set("claims", float64(claims))
	r.set("failed", float64(failed))
	r.set("claims_per_s", claim.rate())
	r.set("claim_p50_ms", claim.p50())
	r.set("claim_p99_ms", claim.p99())
	r.speed("plain", plain)
	r.set("p50_ratio", ratio(claim, plain, sample.p50))
	r.set("rate_ratio", ratio(claim, plain, sample.rate))
	r.set("claim_cpu_ms", claim.cpuEach())
	r.set("plain_cpu_ms", plain.cpuEach())
	r.set("claim_bytes", float64(f.claimer.bytes))
	r.set("plain_bytes", float64(f.plain.bytes))
	return all
}
