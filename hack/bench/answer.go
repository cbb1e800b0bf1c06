// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	waitingAnswer = "waiting/answer"
	// waitingInterval is between two looks at whether a claim waits.
	waitingInterval = time.Millisecond
)

// runWaitingAnswer measures the time from a sandbox turning available to the answer of the
// create of a claim that waits for it.
func (b *bench) runWaitingAnswer(ctx context.Context) (err error) {
	if !b.wants(waitingAnswer) {
		return nil
	}
	p := pool{namespace: "bench-answer", size: 1}
	// No sandbox that the set makes becomes ready by itself.
	s, err := filledServer(ctx, b.settings, filepath.Join(b.dir, "answer"), []pool{p}, "--simulated-start-delay", "24h")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := b.compareAnswers(ctx, s, p)
	if err != nil {
		return fmt.Errorf("%s: %w", waitingAnswer, err)
	}
	return b.report(r)
}

func (b *bench) compareAnswers(ctx context.Context, s *server, p pool) (*result, error) {
	f, err := newFixture(ctx, waitingAnswer, 1, s, p) // which claims the only available sandbox
	if err != nil {
		return nil, err
	}
	f.profiles = b.profiles
	f.claimer.change = waits
	w := &awaited{claimer: f.claimer}
	if err := w.prepare(ctx, b.operations(b.few())); err != nil {
		return nil, err
	}
	r, _, err := f.compare(ctx, b.rounds,
		arm{name: "answer", count: b.few(), reset: f.claimer.reset, ready: w.create, do: w.serve, cpu: s.cpu},
		f.plain.arm(b.few()))
	if err != nil {
		return nil, err
	}
	r.answerFigures = &answerFigures{AnswerRatio: r.ClaimP99 / r.PlainP50}
	r.judge(atMost("answer_ratio", r.AnswerRatio, 20))
	return r, nil
}

// awaited is one claim after the other that waits for a sandbox.
type awaited struct {
	claimer *claimer
	// starting are sandboxes of the pool that nobody makes available but serve.
	starting []string
	// answer is that of the create that is under way.
	answer chan answered
}

type answered struct {
	claim *v1alpha1.SandboxClaim
	err   error
}

// prepare lets the set make n sandboxes, which do not become ready.
func (a *awaited) prepare(ctx context.Context, n int) error {
	s, p := a.claimer.server, a.claimer.pool
	if err := s.patchSet(ctx, p, map[string]any{"replicas": n, "scaleStrategy": release}); err != nil {
		return err
	}
	for deadline := time.Now().Add(poolTimeout); ; {
		list, err := s.clients[0].AgentsV1alpha1().Sandboxes(p.namespace).
			List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxClaimed + "=" + v1alpha1.ClaimedFalse})
		if err != nil {
			return err
		}
		if len(list.Items) == n {
			for i := range list.Items {
				a.starting = append(a.starting, list.Items[i].Name)
			}
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("set %s/%s made %d sandboxes of %d after %s", p.namespace, p.name(), len(list.Items), n, poolTimeout)
		}
		if err := sleep(ctx, poolInterval); err != nil {
			return err
		}
	}
	// What is claimed is not replaced.
	if err := s.patchSet(ctx, p, map[string]any{"scaleStrategy": hold}); err != nil {
		return err
	}
	return s.idle(ctx)
}

// create creates a claim, and returns when it waits.
func (a *awaited) create(ctx context.Context, client int) error {
	claim := a.claimer.claim(1)
	a.answer = make(chan answered, 1)
	go func() {
		created, err := a.claimer.create(ctx, client, claim)
		a.answer <- answered{created, err}
	}()
	claims := a.claimer.server.client(client).AgentsV1alpha1().SandboxClaims(claim.Namespace)
	for {
		_, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case early := <-a.answer:
			return fmt.Errorf("claim %s did not wait: %w", claim.Name, early.err)
		case <-time.After(waitingInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serve makes a sandbox available, as its controller does, and returns when the create is
// answered.
func (a *awaited) serve(ctx context.Context, client int) error {
	if len(a.starting) == 0 {
		return errors.New("no sandboxes are left")
	}
	name := a.starting[0]
	a.starting = a.starting[1:]
	now := metav1.Now()
	status := v1alpha1.SandboxStatus{
		ObservedGeneration: 1, Phase: v1alpha1.SandboxRunning, NodeName: "bench", SandboxIP: "127.1.1.1",
		PodInfo: v1alpha1.PodInfo{PodIP: "127.1.1.1", NodeName: "bench"},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonPodReady, LastTransitionTime: now,
		}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	if _, err := a.claimer.server.client(client).AgentsV1alpha1().Sandboxes(a.claimer.pool.namespace).
		Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	select {
	case answer := <-a.answer:
		if answer.err != nil {
			return answer.err
		}
		return a.claimer.take(answer.claim, 1)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
