// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
)

// TestRequester: in the background a claim is the user who made it, as they were then, or
// no user at all.
func TestRequester(t *testing.T) {
	const name, pod = "system:serviceaccount:ns:ann", "authentication.kubernetes.io/pod-name"
	tests := map[string]struct {
		who  *user.DefaultInfo // nil: no user
		want error
	}{
		"a name":     {who: &user.DefaultInfo{Name: name}},
		"in full":    {who: &user.DefaultInfo{Name: name, UID: "1", Groups: []string{"a", "b"}, Extra: map[string][]string{pod: {"x", "y"}}}},
		"an admin":   {who: &user.DefaultInfo{Name: "boss", Groups: []string{user.SystemPrivilegedGroup}}},
		"a secret":   {who: &user.DefaultInfo{Name: name, Extra: map[string][]string{pod: {"x"}, "example.com/token": {"s3cr3t"}}}, want: allocator.ErrIdentityUnknown},
		"too much":   {who: &user.DefaultInfo{Name: name, Groups: strings.Split(strings.Repeat("group ", 2000), " ")}, want: allocator.ErrIdentityUnknown},
		"no request": {want: allocator.ErrIdentityUnknown},
	}
	for what, tc := range tests {
		t.Run(what, func(t *testing.T) {
			ctx := t.Context()
			claim := &v1alpha1.SandboxClaim{}
			claim.UID = uuid.NewUUID()
			claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedByIdentity: `{"username":"eve","groups":["system:masters"]}`}
			if tc.who != nil {
				ctx = genericapirequest.WithUser(ctx, tc.who)
			}
			sandboxclaim.NewStrategy(scheme, testclock.NewFakePassiveClock(claim.CreationTimestamp.Time), validation.DefaultClaimLimits()).PrepareForCreate(ctx, claim)
			if recorded := claim.Annotations[v1alpha1.AnnotationClaimedByIdentity]; strings.Contains(recorded, "s3cr3t") || strings.Contains(recorded, "eve") {
				t.Errorf("recorded is %s", recorded)
			}
			got, err := requester(context.Background(), claim)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if tc.want == nil {
				if diff := cmp.Diff(user.Info(tc.who), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if tc.who != nil {
				if got, err := requester(ctx, claim); got != tc.who || err != nil {
					t.Errorf("in a request: %+v, %v", got, err)
				}
			}
		})
	}
}
