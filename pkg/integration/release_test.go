// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// released releases sandboxes of the claim mine, and returns which.
func released(t *testing.T, s *testutil.Server, names ...string) []string {
	t.Helper()
	answer, err := claims(s).Release(t.Context(), "mine", release(names...), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("releasing %v: %v", names, err)
	}
	if answer.Status.Remaining != 0 {
		t.Fatalf("%d sandboxes remain", answer.Status.Remaining)
	}
	return answer.Status.Released
}

func release(names ...string) *v1alpha1.SandboxClaimRelease {
	return &v1alpha1.SandboxClaimRelease{Spec: v1alpha1.SandboxClaimReleaseSpec{SandboxNames: names}}
}

func namesOf(claim *v1alpha1.SandboxClaim) []string {
	names := make([]string, 0, len(claim.Status.Sandboxes))
	for _, sb := range claim.Status.Sandboxes {
		names = append(names, sb.Name)
	}
	slices.Sort(names)
	return names
}

// left fails unless the sandboxes are those of these names.
func left(t *testing.T, s *testutil.Server, want ...[]string) {
	t.Helper()
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := sets.New[string]()
	for _, sb := range list.Items {
		got.Insert(sb.Name)
	}
	if diff := cmp.Diff(sets.New(slices.Concat(want...)...), got); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
}

// A release deletes what is bound to the claim, and nothing of other claims, also not of
// one that had its name before. What the claim says of its allocation stays.
func TestRelease(t *testing.T) {
	s, set := stocked(t, 9)
	other := create(t, s, testutil.Claim(set, "other", 2, nil))
	earlier := create(t, s, testutil.Claim(set, "mine", 2, nil))
	if err := claims(s).Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mine := create(t, s, testutil.Claim(set, "mine", 3, nil))
	names, kept := namesOf(mine), slices.Concat(namesOf(other), namesOf(earlier))
	for _, sb := range listed(t, s, v1alpha1.LabelSandboxClaimed+"="+v1alpha1.ClaimedFalse) {
		kept = append(kept, sb.Name)
	}

	dry, err := claims(s).Release(t.Context(), "mine", release(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || !slices.Equal(dry.Status.Released, names) {
		t.Errorf("a dry run says %+v, %v; want %v", dry, err, names)
	}
	left(t, s, kept, names)

	if got := released(t, s, names[1]); !slices.Equal(got, names[1:2]) {
		t.Errorf("released %v, want %v", got, names[1:2])
	}
	left(t, s, kept, names[:1], names[2:])
	if got := released(t, s); !slices.Equal(got, []string{names[0], names[2]}) {
		t.Errorf("released %v, want all but %s", got, names[1])
	}
	left(t, s, kept)
	for _, again := range [][]string{nil, names} {
		if got := released(t, s, again...); len(got) != 0 {
			t.Errorf("the second release of %v has released %v", again, got)
		}
	}
	after, err := claims(s).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mine, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the claim (-before +after):\n%s", diff)
	}
}

func listed(t *testing.T, s *testutil.Server, selector string) []v1alpha1.Sandbox {
	t.Helper()
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// What is refused has deleted nothing.
func TestReleaseIsRefused(t *testing.T) {
	s, set := stocked(t, 5, withSyncWindow(time.Millisecond))
	mine := create(t, s, testutil.Claim(set, "mine", 2, nil))
	other := create(t, s, testutil.Claim(set, "other", 1, nil))
	create(t, s, testutil.Claim(set, "claiming", 3, waits))
	before := readAll(t, s)
	uid := release()
	uid.Spec.ClaimUID = other.UID
	named := release()
	named.Name = "other"
	many := release(slices.Repeat(namesOf(mine), 5001)...)
	for name, tc := range map[string]struct {
		claim   string
		release *v1alpha1.SandboxClaimRelease
		is      func(error) bool
		text    string
	}{
		"no such claim":           {"none", release(), apierrors.IsNotFound, `"none" not found`},
		"another claim's sandbox": {"mine", release(append(namesOf(mine), namesOf(other)...)...), apierrors.IsInvalid, "spec.sandboxNames[2]"},
		"no name":                 {"mine", release("Nope!"), apierrors.IsInvalid, "spec.sandboxNames[0]"},
		"too many names":          {"mine", many, apierrors.IsInvalid, "spec.sandboxNames: Too many"},
		"another UID":             {"mine", uid, apierrors.IsConflict, string(mine.UID)},
		"another name":            {"mine", named, apierrors.IsBadRequest, "metadata.name"},
		"not Completed":           {"claiming", release(), apierrors.IsConflict, "claimTimeout"},
	} {
		answer, err := claims(s).Release(t.Context(), tc.claim, tc.release, metav1.CreateOptions{})
		if !tc.is(err) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: got %+v, %v; want %q", name, answer, err, tc.text)
		}
	}
	if diff := cmp.Diff(before, readAll(t, s)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
}

// onDelete is admission that judges deletions of sandboxes.
type onDelete struct {
	judge atomic.Pointer[func(context.Context, *v1alpha1.Sandbox, admission.Attributes) error]
}

func (*onDelete) Handles(o admission.Operation) bool { return o == admission.Delete }

func (d *onDelete) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if sb, ok := a.GetOldObject().(*v1alpha1.Sandbox); ok {
		if judge := d.judge.Load(); judge != nil {
			return (*judge)(ctx, sb, a)
		}
	}
	return nil
}

func (d *onDelete) set(judge func(context.Context, *v1alpha1.Sandbox, admission.Attributes) error) {
	d.judge.Store(&judge)
}

func (d *onDelete) server() testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) { c.GenericConfig.AdmissionControl = d })
}

// A policy that keeps a sandbox from being deleted keeps it from being released.
func TestReleaseIsAdmitted(t *testing.T) {
	policy := &onDelete{}
	s, set := stocked(t, 3, policy.server())
	names := namesOf(create(t, s, testutil.Claim(set, "mine", 3, nil)))
	policy.set(func(_ context.Context, sb *v1alpha1.Sandbox, a admission.Attributes) error {
		if sb.Name != names[1] {
			return nil
		}
		if a.GetName() != sb.Name || a.GetResource().Resource != "sandboxes" || a.GetSubresource() != "" || a.GetUserInfo().GetName() == "" {
			t.Errorf("asked about %+v", a)
		}
		return admission.NewForbidden(a, errors.New("it is precious"))
	})
	for range 2 {
		if answer, err := claims(s).Release(t.Context(), "mine", release(), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it is precious") {
			t.Errorf("got %+v, %v", answer, err)
		}
		left(t, s, names[1:2])
	}
	policy.judge.Store(nil)
	if got := released(t, s); !slices.Equal(got, names[1:2]) {
		t.Errorf("released %v, want %v", got, names[1:2])
	}
}

// A sandbox that becomes another claim's in the very moment is not deleted.
func TestReleaseLosesARace(t *testing.T) {
	moment := &onDelete{}
	s, set := stocked(t, 2, moment.server())
	names := namesOf(create(t, s, testutil.Claim(set, "mine", 2, nil)))
	client, err := clientv3.New(clientv3.Config{Endpoints: s.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	moved := false
	moment.set(func(ctx context.Context, sb *v1alpha1.Sandbox, _ admission.Attributes) error {
		if sb.Name != names[0] || moved {
			return nil
		}
		moved = true
		key := options.EtcdPrefix + "/agents.kruise.io/sandboxes/" + namespace + "/" + sb.Name
		stored, err := client.Get(ctx, key)
		if err != nil || len(stored.Kvs) != 1 {
			return fmt.Errorf("reading %s: %d keys, %w", key, len(stored.Kvs), err)
		}
		owner := []byte(sb.Annotations[v1alpha1.AnnotationOwner])
		_, err = client.Put(ctx, key, string(bytes.ReplaceAll(stored.Kvs[0].Value, owner, bytes.Repeat([]byte("x"), len(owner)))))
		return err
	})
	if got := released(t, s); !slices.Equal(got, names[1:]) || !moved {
		t.Errorf("released %v, want %v", got, names[1:])
	}
	left(t, s, names[:1])
}

// A release that has no time left says what it has not come to, and continues when it is
// asked again.
func TestReleaseGoesOn(t *testing.T) {
	slow := &onDelete{}
	const n = 100
	s, set := stocked(t, n, slow.server())
	names := namesOf(create(t, s, testutil.Claim(set, "mine", n, nil)))
	// The first of them take the time of the first call, except for what is left to answer.
	slow.set(func(ctx context.Context, _ *v1alpha1.Sandbox, _ admission.Attributes) error {
		if deadline, ok := ctx.Deadline(); ok {
			time.Sleep(time.Until(deadline) - 1950*time.Millisecond)
		}
		return nil
	})
	var got []string
	calls := 0
	for {
		answer := &v1alpha1.SandboxClaimRelease{}
		err := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(namespace).Resource("sandboxclaims").Name("mine").SubResource("release").
			Param("timeout", "10s").Body(release()).Do(t.Context()).Into(answer)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		slow.set(func(context.Context, *v1alpha1.Sandbox, admission.Attributes) error { return nil })
		got = append(got, answer.Status.Released...)
		if remain := n - len(got); int(answer.Status.Remaining) != remain {
			t.Fatalf("%d of %d are released, and %d are said to remain", len(got), n, answer.Status.Remaining)
		}
		if answer.Status.Remaining == 0 {
			break
		}
	}
	slices.Sort(got)
	if calls < 2 || !slices.Equal(got, names) {
		t.Errorf("%d calls have released %v", calls, got)
	}
	left(t, s)
}

// Finalizers hold a released sandbox as they hold a deleted one.
func TestReleaseWaitsForFinalizers(t *testing.T) {
	s, set := stocked(t, 1)
	name := namesOf(create(t, s, testutil.Claim(set, "mine", 1, nil)))[0]
	sb, err := sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb.Finalizers = []string{"example.com/last-words"}
	if _, err := sandboxes(s).Update(t.Context(), sb, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := released(t, s); !slices.Equal(got, []string{name}) {
		t.Errorf("released %v", got)
	}
	sb, err = sandboxes(s).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || sb.DeletionTimestamp == nil {
		t.Errorf("got %+v, %v; want it to be terminating", sb, err)
	}
	if got := released(t, s); len(got) != 0 {
		t.Errorf("the second release has released %v", got)
	}
}
