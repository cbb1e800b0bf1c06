// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// fakeRuntimes has tokens that say whose they are.
type fakeRuntimes struct{}

func (fakeRuntimes) URL(*v1alpha1.Sandbox) string { return "" }

func (fakeRuntimes) Token(_ context.Context, claim types.UID, sb *v1alpha1.Sandbox) (string, error) {
	return fmt.Sprintf("%s/%s", claim, sb.UID), nil
}

func (fakeRuntimes) TokenIn(_ context.Context, claim *v1alpha1.SandboxClaim, in v1alpha1.ClaimedSandbox) (string, error) {
	if in.Name == "broken" {
		return "", errors.New("its version is gone")
	}
	if claim.Spec.SkipInitRuntime {
		return "", nil
	}
	return fmt.Sprintf("%s/%s", claim.UID, in.UID), nil
}

// Tokens are returned for claims that are done, and for few sandboxes.
func TestFillTokens(t *testing.T) {
	tests := map[string]struct {
		sandboxes int
		phase     v1alpha1.SandboxClaimPhase
		skipInit  bool
		withheld  bool
		want      int
		token     string
	}{
		"done":                 {sandboxes: 1, phase: v1alpha1.SandboxClaimPhaseCompleted, want: 1, token: "claim/uid-0"},
		"as many as may be":    {sandboxes: v1alpha1.MaxResponseTokens, phase: v1alpha1.SandboxClaimPhaseCompleted, want: v1alpha1.MaxResponseTokens, token: "claim/uid-0"},
		"too many":             {sandboxes: v1alpha1.MaxResponseTokens + 1, phase: v1alpha1.SandboxClaimPhaseCompleted},
		"none":                 {phase: v1alpha1.SandboxClaimPhaseCompleted},
		"at work":              {sandboxes: 1, phase: v1alpha1.SandboxClaimPhaseClaiming},
		"without tokens":       {sandboxes: 1, phase: v1alpha1.SandboxClaimPhaseCompleted, skipInit: true, want: 1},
		"changed by admission": {sandboxes: 1, phase: v1alpha1.SandboxClaimPhaseCompleted, withheld: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim"}}
			claim.Spec.SkipInitRuntime, claim.Status.Phase = tc.skipInit, tc.phase
			for i := range tc.sandboxes {
				claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: fmt.Sprintf("s%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i))})
			}
			tokens := &ResponseTokens{withheld: tc.withheld}
			(&TokenResponder{Runtimes: fakeRuntimes{}}).fill(t.Context(), tokens, claim)
			if got := tokens.BySandbox(); len(got) != tc.want || got["s0"] != tc.token {
				t.Errorf("told %v", got)
			}
		})
	}
}

// meetingRuntimes tell a token when all are asked for.
type meetingRuntimes struct {
	fakeRuntimes
	all *sync.WaitGroup
}

func (m meetingRuntimes) TokenIn(ctx context.Context, claim *v1alpha1.SandboxClaim, in v1alpha1.ClaimedSandbox) (string, error) {
	m.all.Done()
	m.all.Wait()
	return m.fakeRuntimes.TokenIn(ctx, claim, in)
}

// TestTokensAreReadAtOnce: the tokens of several sandboxes are read at the same time. Otherwise this
// test does not end.
func TestTokensAreReadAtOnce(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim"}}
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{{Name: "a", UID: "1"}, {Name: "b", UID: "2"}, {Name: "c", UID: "3"}}
	all, tokens := &sync.WaitGroup{}, &ResponseTokens{}
	all.Add(len(claim.Status.Sandboxes))
	(&TokenResponder{Runtimes: meetingRuntimes{all: all}}).fill(t.Context(), tokens, claim)
	if diff := cmp.Diff(map[string]string{"a": "claim/1", "b": "claim/2", "c": "claim/3"}, tokens.BySandbox()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where a token cannot be computed, none are returned.
func TestBrokenTokens(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim"}}
	claim.Status.Phase = v1alpha1.SandboxClaimPhaseCompleted
	claim.Status.Sandboxes = []v1alpha1.ClaimedSandbox{{Name: "fine", UID: "1"}, {Name: "broken", UID: "2"}}
	tokens := &ResponseTokens{}
	(&TokenResponder{Runtimes: fakeRuntimes{}}).fill(t.Context(), tokens, claim)
	if got := tokens.BySandbox(); len(got) != 0 {
		t.Errorf("told %v", got)
	}
}

// What an authorizer answers is obeyed, before admission is asked.
func TestTokensAreAuthorized(t *testing.T) {
	tests := map[string]struct {
		decision authorizer.Decision
		err      error
		is       func(error) bool
	}{
		"allowed":             {decision: authorizer.DecisionAllow, is: func(err error) bool { return err == nil }},
		"allowed, with error": {decision: authorizer.DecisionAllow, err: errors.New("one of several failed"), is: func(err error) bool { return err == nil }},
		"denied":              {decision: authorizer.DecisionDeny, is: apierrors.IsForbidden},
		"no opinion":          {decision: authorizer.DecisionNoOpinion, is: apierrors.IsForbidden},
		"no answer":           {decision: authorizer.DecisionNoOpinion, err: errors.New("away"), is: apierrors.IsInternalError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var asked []string
			a := &TokenResponder{
				Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					asked = append(asked, "authorizer")
					return tc.decision, "", tc.err
				}),
				Admit: func(context.Context, *v1alpha1.SandboxClaimRuntimeAccess, *metav1.CreateOptions) error {
					asked = append(asked, "access")
					return nil
				},
			}
			admit := func(context.Context, runtime.Object) error {
				asked = append(asked, "claim")
				return nil
			}
			err := a.admitted(&ResponseTokens{}, admit, &metav1.CreateOptions{})(t.Context(), &v1alpha1.SandboxClaim{})
			want := []string{"authorizer"}
			if err == nil {
				want = append(want, "access", "claim")
			}
			if diff := cmp.Diff(want, asked); diff != "" || !tc.is(err) {
				t.Errorf("%v, asked (-want +got):\n%s", err, diff)
			}
		})
	}
}
