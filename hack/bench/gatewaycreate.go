// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

const (
	gatewayCreate     = "gateway/create"
	gatewayCreateMany = "gateway/create-c64"
	// maxCreateRatio is how much more than the same claim a create through the gateway may
	// take.
	maxCreateRatio = 1.2
)

// createFigures compare creates through the gateway with the same claims through the
// aggregator.
type createFigures struct {
	// Creates counts both. One fails if its sandbox is not in the store under its id, or if
	// the store has one that nobody was told of.
	Creates       int `json:"creates"`
	FailedCreates int `json:"creates_failed"`

	CreatePerS      number `json:"create_per_s"`
	CreateP50       number `json:"create_p50_ms"`
	CreateP99       number `json:"create_p99_ms"`
	SamePerS        number `json:"same_claim_per_s"`
	SameP50         number `json:"same_claim_p50_ms"`
	SameP99         number `json:"same_claim_p99_ms"`
	CreateRatio     number `json:"create_p50_ratio"`
	CreateRateRatio number `json:"create_rate_ratio"`
	// TokenP50 is that of the same claims with the access token of the sandbox in the answer,
	// as the gateway makes them. So TokenRatio, by the same claims, is what a create costs at
	// least.
	TokenP50   number `json:"claim_and_token_p50_ms"`
	TokenRatio number `json:"claim_and_token_p50_ratio"`
	// CreateCPU is what a create costs the gateway.
	CreateCPU number `json:"create_gateway_cpu_ms"`
}

// runCreates compares creates through the gateway with claims that client-go makes through
// kube-apiserver: the same claims, by the same user, on the same pool. A round of either
// begins when the pool is full and nothing else goes on, and takes less than half of the
// pool; then the sandboxes are given back.
func (b *bench) runCreates(name string, clients, count int, goals func(*createFigures) []goal) func(context.Context, *gateway) (*result, error) {
	return func(ctx context.Context, g *gateway) (*result, error) {
		t, err := g.team(ctx, pool{namespace: fmt.Sprintf("bench-e2b-c%d", clients), size: count * 5 / 2})
		if err != nil {
			return nil, err
		}
		c := &creates{team: t, made: map[string]bool{}}
		arms := []arm{
			c.arm("gateway", count, func(ctx context.Context, _ int) (string, error) { return t.create(ctx) }),
			c.arm("same claim", count, func(ctx context.Context, client int) (string, error) {
				claim, err := t.claimDirectly(ctx, client)
				return idOf(claim), err
			}),
			c.arm("same claim and token", count, t.claimWithToken),
		}
		arms[0].cpu = g.cpu
		for i := range arms {
			arms[i].profile = profileOf(g.server, b.profiles, name+"-"+arms[i].name)
		}
		all, err := compare(ctx, name, clients, b.rounds, arms)
		if err != nil {
			return nil, err
		}
		through, same, withToken := all[0], all[1], all[2]
		r := &result{Case: name, Clients: clients, Pool: t.pool.size, createFigures: &createFigures{
			Creates: c.creates, FailedCreates: c.failed,
			CreatePerS: number(through.rate()), CreateP50: number(through.p50()), CreateP99: number(through.p99()),
			SamePerS: number(same.rate()), SameP50: number(same.p50()), SameP99: number(same.p99()),
			CreateRatio:     number(ratio(through, same, sample.p50)),
			CreateRateRatio: number(ratio(through, same, sample.rate)),
			TokenP50:        number(withToken.p50()),
			TokenRatio:      number(ratio(withToken, same, sample.p50)),
			CreateCPU:       number(through.cpuEach()),
		}}
		r.judge(append(goals(r.createFigures), atMost("creates_failed", number(c.failed), 0))...)
		return r, nil
	}
}

func atMostCreateRatio(f *createFigures) []goal {
	return []goal{atMost("create_p50_ratio", f.CreateRatio, maxCreateRatio)}
}

// forInformation is a case without a goal of its own.
func forInformation(*createFigures) []goal { return nil }

// creates remembers the ids of the sandboxes of a team.
type creates struct {
	team *team

	mu sync.Mutex
	// made are the ids since sandboxes were given back last.
	made            map[string]bool
	creates, failed int
}

func (c *creates) arm(name string, count int, create func(ctx context.Context, client int) (id string, err error)) arm {
	return arm{
		name: name, count: count,
		before: func(ctx context.Context) error { return c.team.gateway.settle(ctx, c.team.pool) },
		after:  c.giveBack,
		reset:  func() { c.creates = 0 },
		do: func(ctx context.Context, client int) error {
			id, err := create(ctx, client)
			if err == nil {
				c.note(id)
			}
			return err
		},
	}
}

func (c *creates) note(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creates++
	if c.made[id] {
		logf("the id %s was given twice", id)
		c.failed++
	}
	c.made[id] = true
}

// giveBack compares the ids with the sandboxes in the store, and deletes these with their
// claims.
func (c *creates) giveBack(ctx context.Context) error {
	agents, namespace := c.team.gateway.clients[0].AgentsV1alpha1(), c.team.pool.namespace
	theirs := metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxID}
	list, err := agents.Sandboxes(namespace).List(ctx, theirs)
	if err != nil {
		return err
	}
	var stored []string
	for i := range list.Items {
		if id, ok := v1alpha1.IsE2B(&list.Items[i]); ok {
			stored = append(stored, id)
		}
	}
	if wrong := mismatches(c.made, stored); len(wrong) > 0 {
		logf("sandboxes were made or stored, not both: %.500s", strings.Join(wrong, " "))
		c.failed += len(wrong)
	}
	clear(c.made)
	if err := agents.SandboxClaims(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return agents.Sandboxes(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, theirs)
}

// mismatches are ids that are in one of two sets alone, or in the second twice.
func mismatches(made map[string]bool, stored []string) []string {
	var wrong []string
	seen := map[string]bool{}
	for _, id := range stored {
		if !made[id] || seen[id] {
			wrong = append(wrong, id)
		}
		seen[id] = true
	}
	for id := range made {
		if !seen[id] {
			wrong = append(wrong, id)
		}
	}
	return wrong
}

// claimDirectly makes the claim that the gateway would make, as the user as whom it acts.
func (t *team) claimDirectly(ctx context.Context, client int) (*v1alpha1.SandboxClaim, error) {
	claim, err := t.claim(time.Now())
	if err != nil {
		return nil, err
	}
	return mustBeBound(t.clients[client%len(t.clients)].AgentsV1alpha1().SandboxClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{}))
}

// claimWithToken does so, and fails if the answer lacks the access token of the sandbox.
func (t *team) claimWithToken(ctx context.Context, n int) (string, error) {
	claim, err := t.claim(time.Now())
	if err != nil {
		return "", err
	}
	options := client.Options{Key: claim.Annotations[client.AnnotationKey], AccessTokens: map[string]string{}}
	claim, err = mustBeBound(client.Create(ctx, t.clients[n%len(t.clients)].AgentsV1alpha1(), claim, options))
	if err != nil {
		return "", err
	}
	if options.AccessTokens[claim.Status.Sandboxes[0].Name] == "" {
		return "", fmt.Errorf("the answer to claim %s has no access token", claim.Name)
	}
	return idOf(claim), nil
}

// mustBeBound fails if a claim that was created has not got its sandbox.
func mustBeBound(claim *v1alpha1.SandboxClaim, err error) (*v1alpha1.SandboxClaim, error) {
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || len(claim.Status.Sandboxes) != 1 {
		return nil, fmt.Errorf("claim %s is %q with %d sandboxes", claim.Name, claim.Status.Phase, len(claim.Status.Sandboxes))
	}
	return claim, nil
}

// idOf is the id of the sandbox of a claim, or nothing of none.
func idOf(claim *v1alpha1.SandboxClaim) string {
	if claim == nil {
		return ""
	}
	return v1alpha1.E2BSandboxID(claim.Namespace, claim.Name)
}

// claim is what the gateway makes of the body of create.
func (t *team) claim(now time.Time) (*v1alpha1.SandboxClaim, error) {
	body := &mapping.NewSandbox{TemplateID: t.pool.name(), Timeout: new(int64(e2bTimeout))}
	order, err := mapping.NewOrder(body, t.keyID, mapping.Limits{MaxTimeout: mapping.DefaultMaxTimeout}, now)
	if err != nil {
		return nil, err
	}
	claim := order.Claim
	claim.Namespace, claim.Name = t.pool.namespace, newCode()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, client.AnnotationKey, rand.Text())
	return claim, nil
}

// newCode is a name as the gateway gives them.
func newCode() string {
	random := make([]byte, 10)
	_, _ = rand.Read(random) // never fails
	return "e" + strings.ToLower(base32.StdEncoding.EncodeToString(random))[:13]
}
