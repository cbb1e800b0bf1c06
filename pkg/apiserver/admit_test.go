// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/allocator"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
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
			sandboxclaim.NewStrategy(scheme.Scheme, testclock.NewFakePassiveClock(claim.CreationTimestamp.Time), validation.DefaultClaimLimits()).PrepareForCreate(ctx, claim)
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

// changesTemplate is a webhook that changes the pod template of what is created.
type changesTemplate struct{ *admission.Handler }

func (changesTemplate) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	a.GetObject().(*v1alpha1.Sandbox).Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"b","image":"b"}]}}`)}
	return nil
}

// TestAdmittedSandboxIsOfItsTemplate: the status of a sandbox that is made for a claim is of
// the template that admission made of it.
func TestAdmittedSandboxIsOfItsTemplate(t *testing.T) {
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Generation: 1}}
	sb.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"a","image":"a"}]}}`)}
	sb.Status = podtemplate.StatusAtBirth(sb)
	before := sb.Status.UpdateRevision
	a := newAdmitter(changesTemplate{admission.NewHandler(admission.Create)}, nil)
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
	if err := a.admit(ctx, &v1alpha1.SandboxClaim{}, []*v1alpha1.Sandbox{sb}, 1); err != nil {
		t.Fatal(err)
	}
	want, err := podtemplate.SandboxRevision(sb)
	if got := sb.Status.UpdateRevision; err != nil || got != want || got == before {
		t.Errorf("is of %s, want %s and not %s, %v", got, want, before, err)
	}
}
