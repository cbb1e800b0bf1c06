// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// says is a check for AwaitClaim.
func says(part string) func(*v1alpha1.SandboxClaim) string {
	return func(claim *v1alpha1.SandboxClaim) string {
		if strings.Contains(claim.Status.Message, part) {
			return ""
		}
		return fmt.Sprintf("it says %q, and not %q", claim.Status.Message, part)
	}
}

const noNode = "3 sandboxes of SandboxSet pool cannot start: Unschedulable: 0/4 nodes are available"

// cannotStart lets a set say that its sandboxes cannot start.
func cannotStart(t *testing.T, s *testutil.Server, set *v1alpha1.SandboxSet) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Available","status":"False","reason":"SandboxesCannotStart","message":%q,"lastTransitionTime":%q}]}}`,
		noNode, time.Now().UTC().Format(time.RFC3339))
	if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Patch(t.Context(), set.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// ahead returns what kubectl get says of how many claims are ahead of one.
func ahead(t *testing.T, s *testutil.Server, name string) string {
	t.Helper()
	var table metav1.Table
	raw, err := s.Client.AgentsV1alpha1().RESTClient().Get().Namespace(namespace).Resource("sandboxclaims").Name(name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
	if err == nil {
		err = json.Unmarshal(raw, &table)
	}
	if err != nil || len(table.Rows) != 1 {
		t.Fatalf("%d rows, %v", len(table.Rows), err)
	}
	at := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == "Ahead" })
	return fmt.Sprint(table.Rows[0].Cells[at])
}

// TestClaimsSayWhatTheyWaitFor: how many sandboxes, how many claims are ahead, and why what it
// waits for cannot start; also at the end.
func TestClaimsSayWhatTheyWaitFor(t *testing.T) {
	s := start(t, withSyncWindow(0))
	set := s.Set(t, namespace, "pool", 5)
	s.Stock(t, set, 0, 1)
	knows(t, s, set, 1)
	long := both(waits, timeout(expect.Patience))
	for i, name := range []string{"whole", "second"} {
		claim := create(t, s, testutil.Claim(set, name, 2, both(long, allOrNothing)))
		if want := "Claiming sandboxes: 0/2 claimed; waits for 2 sandboxes of SandboxSet pool"; claim.Status.Message != want {
			t.Errorf("%s says %q, want %q", name, claim.Status.Message, want)
		}
		if got := ahead(t, s, name); got != fmt.Sprint(i) {
			t.Errorf("%s claims are ahead of %s, want %d", got, name, i)
		}
	}
	cannotStart(t, s, set)
	s.AwaitClaim(t, namespace, "whole", says("SandboxSet pool: "+noNode)) // it is at the front
	create(t, s, testutil.Claim(set, "brief", 3, both(waits, allOrNothing, timeout(time.Second))))
	brief := s.AwaitClaim(t, namespace, "brief", testutil.Completed)
	if m := brief.Status.Message; !strings.HasPrefix(m, "Timeout reached after ") || !strings.HasSuffix(m, ", claimed 0/3 sandboxes; "+noNode) {
		t.Errorf("it ends with %q", m)
	}
	for _, kind := range []string{v1alpha1.ClaimConditionCompleted, v1alpha1.ClaimConditionReady} {
		if c := meta.FindStatusCondition(brief.Status.Conditions, kind); c == nil || c.Message != brief.Status.Message {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	if c := meta.FindStatusCondition(brief.Status.Conditions, v1alpha1.ClaimConditionReady); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonTimeoutReached {
		t.Errorf("Ready is %+v", c)
	}
}

// TestAheadOfOneThatWaits: when the first is gone, none is ahead of the next. Others have no place.
func TestAheadOfOneThatWaits(t *testing.T) {
	s, set := stocked(t, 0, withSyncWindow(0))
	for _, name := range []string{"a", "b"} {
		create(t, s, testutil.Claim(set, name, 1, both(waits, timeout(expect.Patience))))
	}
	if got := ahead(t, s, "b"); got != "1" {
		t.Errorf("%s claims are ahead of the second", got)
	}
	if err := claims(s).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := ahead(t, s, "b"); got != "0" {
			return fmt.Errorf("%s claims are ahead of the one that is left", got)
		}
		return nil
	})
	s.Stock(t, set, 0, 1)
	s.AwaitClaim(t, namespace, "b", testutil.Completed)
	if got := ahead(t, s, "b"); got != "<none>" {
		t.Errorf("%s claims are ahead of one that is served", got)
	}
}

// TestEditRescuesAClaim: one that names what is not there is served as soon as it names what
// is, by update, patch and server-side apply alike; then it cannot be changed any more.
func TestEditRescuesAClaim(t *testing.T) {
	s, set := stocked(t, 3, withSyncWindow(0))
	typo := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pol"}}
	const apply = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"apply"},"spec":{"templateName":%q}}`
	applied := func(name string) error {
		_, err := claims(s).Patch(t.Context(), "apply", types.ApplyPatchType, fmt.Appendf(nil, apply, name), metav1.PatchOptions{FieldManager: "test"})
		return err
	}
	patched := func(name string) error {
		_, err := claims(s).Patch(t.Context(), "patch", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"templateName":%q}}`, name), metav1.PatchOptions{})
		return err
	}
	create(t, s, testutil.Claim(typo, "mine", 1, both(waits, timeout(expect.Patience))))
	create(t, s, testutil.Claim(typo, "patch", 1, timeout(expect.Patience)))
	if err := applied("pol"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "patch", "apply"} {
		s.AwaitClaim(t, namespace, name, says("SandboxSet pol not found in namespace default"))
	}

	edit(t, s, func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = set.Name })
	if err := patched(set.Name); err != nil {
		t.Fatal(err)
	}
	if err := applied(set.Name); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "patch", "apply"} {
		claim := s.AwaitClaim(t, namespace, name, testutil.Completed)
		if claim.Status.ClaimedReplicas != 1 || !isTrue(claim, v1alpha1.ClaimConditionReady) {
			t.Errorf("%s: %+v", name, claim.Status)
		}
	}
	for name, change := range map[string]func(string) error{"patch": patched, "apply": applied} {
		if err := change("other"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.templateName") {
			t.Errorf("%s of a completed claim: %v, want 422 of spec.templateName", name, err)
		}
	}
	checkInvariants(t, s)
}
