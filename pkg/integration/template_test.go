// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// spotPatch makes a pool that claims prefer less.
const spotPatch = `{"metadata":{"labels":{"pool":"spot"}},"spec":{"containers":[{"name":"main","env":[{"name":"POOL","value":"spot"}]}]}}`

// ofTemplate is a claim on a template, by reference.
func ofTemplate(name, template string, replicas int32, changes ...func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.SandboxClaimSpec{
			SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: template}, Replicas: &replicas,
		},
	}
	both(changes...)(claim)
	return claim
}

func fromPool(pool string) func(*v1alpha1.SandboxClaim) {
	return func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = pool }
}

// known waits until a server would hand out n sandboxes for a claim on the template
// python: until then the stock that a test has put into etcd is on its way to the
// index.
func known(t *testing.T, s *testutil.Server, n int32) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		shown, err := claims(s).Create(ctx, ofTemplate("known", "python", n, waits), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		var resizing int32
		if update := meta.FindStatusCondition(shown.Status.Conditions, v1alpha1.ClaimConditionInplaceUpdate); update != nil {
			_, _ = fmt.Sscanf(update.Message, "Resizing %d sandboxes", &resizing)
		}
		if got := shown.Status.ClaimedReplicas + resizing; got != n {
			return fmt.Errorf("the server knows of %d sandboxes, want %d", got, n)
		}
		return nil
	})
}

// pools counts the sandboxes that claims list by the set that they are from.
func pools(of ...*v1alpha1.SandboxClaim) map[string]int {
	from := map[string]int{}
	for _, claim := range of {
		for _, sb := range claim.Status.Sandboxes {
			set, _, _ := strings.Cut(sb.Name, "-0")
			from[set]++
		}
	}
	return from
}

// TestClaimMakesSelfContained: what a claim hands out no longer depends on the
// template, or on the set, that it was made from.
func TestClaimMakesSelfContained(t *testing.T) {
	s := start(t, withAllPodMetadata)
	template := s.Template(t, namespace, "python")
	set := s.SetOf(t, template, "spot", spotPatch, 2)
	s.Stock(t, set, 0, 2)
	claim := create(t, s, ofTemplate("one", "python", 2, fails, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"run": "7"}
	}))
	if testutil.Completed(claim) != "" || claim.Status.ClaimedReplicas != 2 {
		t.Fatalf("answered %+v", claim.Status)
	}
	want := fmt.Sprintf(`{"metadata":{"labels":{"agents.kruise.io/owner":%q,"app":"test","pool":"spot","run":"7"}},`+
		`"spec":{"containers":[{"env":[{"name":"POOL","value":"spot"}],"image":"busybox","name":"main"}]}}`, claim.UID)
	for _, sb := range owned(t, s, claim) {
		if sb.Spec.TemplateRef != nil || sb.Spec.Template == nil {
			t.Fatalf("sandbox %s refers to %v, has template %v", sb.Name, sb.Spec.TemplateRef, sb.Spec.Template)
		}
		if diff := cmp.Diff(want, string(sb.Spec.Template.Raw)); diff != "" {
			t.Errorf("template of %s (-want +got):\n%s", sb.Name, diff)
		}
		revision, err := podtemplate.SandboxRevision(&sb)
		if err != nil || sb.Status.UpdateRevision != revision || sb.Status.ObservedGeneration != sb.Generation || sb.Generation != 2 {
			t.Errorf("sandbox %s: updateRevision %s, want %s; observed %d of %d", sb.Name,
				sb.Status.UpdateRevision, revision, sb.Status.ObservedGeneration, sb.Generation)
		}
		if sb.ResourceVersion != claim.ResourceVersion {
			t.Errorf("sandbox %s is at %s, its claim at %s", sb.Name, sb.ResourceVersion, claim.ResourceVersion)
		}
	}
	checkInvariants(t, s)
}

// TestForgedRevisionsAreNotHandedOut: what has the name, the owner and the labels of a
// revision, and another content, reaches no claim. One forged sandbox does not keep claims
// from the others of its revision.
func TestForgedRevisionsAreNotHandedOut(t *testing.T) {
	s := start(t)
	templates := s.Client.AgentsV1alpha1().SandboxTemplates(namespace)
	template := s.Template(t, namespace, "python")
	set := s.SetOf(t, template, "spot", spotPatch, 3)
	forged := testutil.AvailableSandbox(set, 0)
	forged.ObjectMeta = metav1.ObjectMeta{
		Namespace: namespace, Name: "forged", Labels: forged.Labels, OwnerReferences: forged.OwnerReferences,
	}
	forged.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "nowhere"}
	status := forged.Status
	forged, err := sandboxes(s).Create(t.Context(), forged, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forged.Status = status
	if _, err := sandboxes(s).UpdateStatus(t.Context(), forged, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stock(t, set, 0, 3)
	// The feed reports the forged one first, and the claim waits for what it does not
	// report yet.
	claim := create(t, s, ofTemplate("one", "python", 3, waits))
	if claim.Status.ClaimedReplicas != 3 {
		t.Fatalf("answered %+v", claim.Status)
	}
	for _, sb := range owned(t, s, claim) {
		if sb.Name == "forged" {
			t.Error("the forged sandbox is handed out")
		}
	}

	s.Stock(t, set, 3, 2)
	name := podtemplate.RevisionName(set, set.Status.UpdateRevision)
	held, err := templates.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	evil := held.DeepCopy()
	evil.ResourceVersion, evil.UID = "", ""
	evil.Spec.Template.Raw = []byte(strings.ReplaceAll(string(evil.Spec.Template.Raw), "busybox", "evil"))
	for _, gone := range []string{name, "python"} { // nor can it be had from the set any more
		if err := templates.Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := templates.Create(t.Context(), evil, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the cache may know what was there for a moment longer
		claim, err := claims(s).Create(t.Context(), ofTemplate(fmt.Sprintf("c-%d", i), "python", 1, fails), metav1.CreateOptions{})
		if err != nil {
			continue
		}
		for _, sb := range owned(t, s, claim) {
			if strings.Contains(string(sb.Spec.Template.Raw), "evil") {
				t.Errorf("claim %s got %s", claim.Name, sb.Spec.Template.Raw)
			}
		}
	}
}

func TestSandboxesWithoutTheirTemplateAreLeftOut(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "python")
	lost, good := s.SetOf(t, template, "a", "", 2), s.SetOf(t, template, "b", "", 1)
	s.Stock(t, lost, 0, 2)
	s.Stock(t, good, 0, 1)
	known(t, s, 3)
	if err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Delete(t.Context(), podtemplate.RevisionName(lost, lost.Status.UpdateRevision), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The cache may know the template for a moment longer, and so may the claim.
	for i := range 3 {
		_, err := claims(s).Create(t.Context(), ofTemplate(fmt.Sprintf("c-%d", i), "python", 1, fails), metav1.CreateOptions{})
		if err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatalf("claim %d: %v", i, err)
		}
	}
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelSandboxClaimed + "=true"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Items, func(sb v1alpha1.Sandbox) bool { return sb.Name == "b-000000" }) {
		t.Errorf("the pool whose template is there did not serve: %d were claimed", len(list.Items))
	}
	checkInvariants(t, s)
}

// TestSeveralPoolsInOneTransaction: those without a patch first, then by stock.
func TestSeveralPoolsInOneTransaction(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "python")
	for name, stock := range map[string]int{"plain": 2, "spot": 5, "tiny": 3} {
		patch := spotPatch
		if name == "plain" {
			patch = ""
		}
		s.Stock(t, s.SetOf(t, template, name, patch, int32(stock)), 0, stock)
	}
	known(t, s, 10)
	tests := []struct {
		claim *v1alpha1.SandboxClaim
		want  map[string]int
	}{
		{ofTemplate("first", "python", 1, fails), map[string]int{"plain": 1}},
		{ofTemplate("second", "python", 3, fails, allOrNothing), map[string]int{"plain": 1, "spot": 2}},
		{ofTemplate("named", "python", 1, fails, fromPool("tiny")), map[string]int{"tiny": 1}},
		{ofTemplate("third", "python", 5, fails, allOrNothing), map[string]int{"spot": 3, "tiny": 2}},
	}
	for _, tc := range tests {
		claim := create(t, s, tc.claim)
		if diff := cmp.Diff(tc.want, pools(claim)); diff != "" {
			t.Errorf("%s is served from (-want +got):\n%s", claim.Name, diff)
		}
		for _, sb := range owned(t, s, claim) {
			if sb.ResourceVersion != claim.ResourceVersion {
				t.Errorf("sandbox %s is at %s, its claim %s at %s: not one transaction", sb.Name, sb.ResourceVersion, claim.Name, claim.ResourceVersion)
			}
		}
	}
	checkInvariants(t, s)
}

// TestTemplateNameOfATemplate: templateName is a set's name, and where there is no
// such set a template's.
func TestTemplateNameOfATemplate(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "python")
	spot := s.SetOf(t, template, "spot", spotPatch, 1)
	s.Stock(t, spot, 0, 1)
	asked := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "python"}}
	if claim := create(t, s, testutil.Claim(asked, "by-template", 1, fails)); pools(claim)["spot"] != 1 {
		t.Errorf("answered %+v", claim.Status)
	}
	_, err := claims(s).Create(t.Context(), testutil.Claim(asked, "short", 2, fails), metav1.CreateOptions{})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "SandboxTemplate python has 0 of 2 sandboxes available") {
		t.Errorf("short: %v", err)
	}
	// From now on the name is that of a set.
	s.Stock(t, s.Set(t, namespace, "python", 1), 0, 1)
	s.Stock(t, spot, 1, 1)
	known(t, s, 2) // by reference it serves too
	if claim := create(t, s, testutil.Claim(asked, "by-set", 1, fails)); pools(claim)["python"] != 1 {
		t.Errorf("answered %+v", claim.Status)
	}
	_, err = claims(s).Create(t.Context(), testutil.Claim(asked, "short", 1, fails), metav1.CreateOptions{})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "SandboxSet python has 0 of 1 sandboxes available") {
		t.Errorf("short of the set: %v", err)
	}
	checkInvariants(t, s)
}

func TestUnknownTemplate(t *testing.T) {
	s := start(t)
	set := s.Set(t, namespace, "pool", 0)
	template := s.Template(t, namespace, "python")
	s.SetOf(t, template, "spot", spotPatch, 0)
	s.Template(t, namespace, "bare")
	tests := map[string]struct {
		claim                 *v1alpha1.SandboxClaim
		field, message, cause string
	}{
		"no template": {
			claim: ofTemplate("c", "nowhere", 1), field: "spec.sandboxTemplateRef.name",
			message: "SandboxTemplate nowhere not found in namespace default", cause: v1alpha1.ReasonSandboxTemplateNotFound,
		},
		"no pool": {
			claim: testutil.Claim(set, "c", 1, fromPool("nowhere")), field: "spec.warmPool",
			message: "SandboxSet nowhere not found in namespace default", cause: v1alpha1.ReasonSandboxSetNotFound,
		},
		"a pool of something else": {
			claim: testutil.Claim(set, "c", 1, fromPool("spot")), field: "spec.warmPool",
			message: "SandboxSet spot has no sandboxes of pool", cause: v1alpha1.ReasonWarmPoolMismatch,
		},
		"no pool of the template, and none may be made": {
			claim: ofTemplate("c", "bare", 1, waits), field: "spec.sandboxTemplateRef.name",
			message: "No SandboxSet in namespace default refers to SandboxTemplate bare", cause: v1alpha1.ReasonSandboxSetNotFound,
		},
	}
	for name, tc := range tests {
		refused := tc.claim.DeepCopy()
		fails(refused)
		_, err := claims(s).Create(t.Context(), refused, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.field) {
			t.Errorf("%s: with Fail: %v, want 422 for %s", name, err, tc.field)
		}
		waiting := tc.claim.DeepCopy()
		waiting.Name, waiting.GenerateName = "", "c-"
		timeout(time.Second)(waiting)
		claim := create(t, s, waiting)
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming || claim.Status.Message != tc.message {
			t.Errorf("%s: with Wait: %s, %q, want %q", name, claim.Status.Phase, claim.Status.Message, tc.message)
		}
		ended := s.AwaitClaim(t, namespace, claim.Name, testutil.Completed)
		if ended.Status.Message != tc.message || ended.Status.Conditions[1].Reason != tc.cause {
			t.Errorf("%s: ends with %q, %v", name, ended.Status.Message, ended.Status.Conditions)
		}
	}
}

// TestServedByWhicheverPoolHasStockFirst: claims that wait for a template stand in
// the lines of all its sets, and are served in the order in which they came.
func TestServedByWhicheverPoolHasStockFirst(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	template := s.Template(t, namespace, "python")
	sets := []*v1alpha1.SandboxSet{
		s.SetOf(t, template, "a", "", 5), s.SetOf(t, template, "b", spotPatch, 5), s.SetOf(t, template, "c", spotPatch, 5),
	}
	const n = 9
	for i := range n {
		create(t, s, ofTemplate(fmt.Sprintf("c-%d", i), "python", 1, waits, timeout(expect.Patience)))
	}
	for i := range n {
		set := sets[(i*2+1)%len(sets)]
		want := s.Stock(t, set, i, 1)[0]
		claim := s.AwaitClaim(t, namespace, fmt.Sprintf("c-%d", i), testutil.Completed)
		if claim.Status.ClaimedReplicas != 1 || claim.Status.Sandboxes[0].Name != want {
			t.Errorf("claim %d ends with %+v, want %s", i, claim.Status, want)
		}
	}
	// One that needs more than any of them has at once, and a set that comes later.
	create(t, s, ofTemplate("all", "python", 4, waits, allOrNothing, timeout(expect.Patience)))
	s.Stock(t, sets[0], 20, 1)
	s.Stock(t, sets[1], 20, 2)
	later := s.SetOf(t, template, "d", "", 5)
	s.Stock(t, later, 20, 1)
	claim := s.AwaitClaim(t, namespace, "all", testutil.Completed)
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 2, "d": 1}, pools(claim)); diff != "" {
		t.Errorf("all at once is served from (-want +got):\n%s", diff)
	}
	checkInvariants(t, s)
}

func TestFreshSandboxesOfReferences(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	template := s.Template(t, namespace, "python")
	plainRaw := string(template.Spec.Template.Raw)
	set := s.SetOf(t, template, "spot", spotPatch, 1)
	s.Stock(t, set, 0, 1)
	inline := s.Set(t, namespace, "pool", 1)
	s.Stock(t, inline, 0, 1)
	known(t, s, 1)
	tests := map[string]struct {
		claim    *v1alpha1.SandboxClaim
		prefix   string
		pool     string
		template string
		spot     bool
	}{
		"of a set, with its patch": {
			claim: testutil.Claim(set, "cold", 1, fromPool("none")), prefix: "spot-", pool: "spot", template: "python", spot: true,
		},
		"of a template whose sets are all patched": {
			claim: ofTemplate("cold", "python", 1, fromPool("none")), prefix: "python-", template: "python",
		},
		"of the pool that is named": {
			claim: ofTemplate("cold", "python", 2, fromPool("spot")), prefix: "spot-", pool: "spot", template: "python", spot: true,
		},
		"of a set with a template of its own": {
			claim: ofTemplate("cold", "pool", 1, func(c *v1alpha1.SandboxClaim) {
				c.Annotations = map[string]string{v1alpha1.AnnotationE2BPrewarmStrategy: "none"}
			}), prefix: "pool-", pool: "pool", template: "pool",
		},
	}
	for name, tc := range tests {
		tc.claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
		claim := create(t, s, tc.claim)
		var fresh *v1alpha1.Sandbox
		for _, sb := range freshOf(t, s, int(*tc.claim.Spec.Replicas)) {
			if sb.Annotations[v1alpha1.AnnotationStarting] != "" {
				fresh = &sb
			}
		}
		if fresh == nil {
			t.Fatalf("%s: no fresh sandbox: %+v", name, claim.Status)
		}
		if !strings.HasPrefix(fresh.Name, tc.prefix) || fresh.Labels[v1alpha1.LabelSandboxPool] != tc.pool ||
			fresh.Labels[v1alpha1.LabelSandboxTemplate] != tc.template || fresh.Spec.TemplateRef != nil || fresh.Spec.Template == nil {
			t.Fatalf("%s: made %s, labels %v, template %v", name, fresh.Name, fresh.Labels, fresh.Spec.Template)
		}
		if spot := strings.Contains(string(fresh.Spec.Template.Raw), "spot"); spot != tc.spot || !spot && !strings.Contains(plainRaw, "busybox") {
			t.Errorf("%s: template is %s", name, fresh.Spec.Template.Raw)
		}
		setStatus(t, s, fresh, testutil.ReadyStatus(200, time.Now()))
		if ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed); ended.Status.ClaimedReplicas != *tc.claim.Spec.Replicas {
			t.Errorf("%s: ends with %+v", name, ended.Status)
		}
		if err := claims(s).Delete(t.Context(), "cold", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, sb := range owned(t, s, claim) {
			if err := sandboxes(s).Delete(t.Context(), sb.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTemplateWithoutASet is created straight from: also one that comes later, and
// one that a reference leads to only later.
func TestTemplateWithoutASet(t *testing.T) {
	s := start(t, withSyncWindow(time.Millisecond))
	asked := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}}
	early := create(t, s, testutil.Claim(asked, "cold", 1, timeout(expect.Patience)))
	if early.Status.Message != "SandboxSet bare not found in namespace default" {
		t.Errorf("before there is a template: %q", early.Status.Message)
	}
	chain := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	chain.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "base"}
	chain.Spec.Service, chain.Spec.NetworkPolicyManagement = new(true), v1alpha1.NetworkPolicyManaged
	chain.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "csi"}}
	if _, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), chain, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	broken := s.AwaitClaim(t, namespace, "cold", func(c *v1alpha1.SandboxClaim) string {
		if !strings.Contains(c.Status.Message, "no fresh sandboxes can be made: ") || !strings.Contains(c.Status.Message, "SandboxTemplate base: not found") {
			return "does not say what is broken"
		}
		return ""
	})
	if !strings.HasPrefix(broken.Status.Message, "Claiming sandboxes: 0/1 claimed") {
		t.Errorf("says %q", broken.Status.Message)
	}
	_, err := claims(s).Create(t.Context(), testutil.Claim(asked, "fail", 1, both(fails, func(c *v1alpha1.SandboxClaim) {
		c.Spec.CreateOnNoStock = new(true)
	})), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "SandboxTemplate base: not found") {
		t.Errorf("with Fail: %v", err)
	}
	s.Template(t, namespace, "base")
	fresh := freshOf(t, s, 1)[0]
	if fresh.Labels[v1alpha1.LabelSandboxPool] != "" || fresh.Labels[v1alpha1.LabelSandboxTemplate] != "bare" {
		t.Errorf("labels are %v", fresh.Labels)
	}
	if spec := fresh.Spec; spec.Service == nil || !*spec.Service || len(spec.Runtimes) != 1 || !strings.Contains(string(spec.Template.Raw), `"dnsPolicy":"None"`) {
		t.Errorf("it does not have all of its template: %+v", spec)
	}
	setStatus(t, s, &fresh, testutil.ReadyStatus(1, time.Now()))
	if ended := s.AwaitClaim(t, namespace, "cold", testutil.Completed); ended.Status.ClaimedReplicas != 1 {
		t.Errorf("ends with %+v", ended.Status)
	}
	checkInvariants(t, s)
}

func TestBrokenChainIsToldAtTheEnd(t *testing.T) {
	s := start(t)
	chain := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	chain.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "base"}
	if _, err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Create(t.Context(), chain, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, s, ofTemplate("c", "bare", 1, timeout(time.Second)))
	ended := s.AwaitClaim(t, namespace, "c", testutil.Completed)
	if !strings.Contains(ended.Status.Message, "claimed 0/1 sandboxes; no fresh sandboxes can be made: ") {
		t.Errorf("ends with %q", ended.Status.Message)
	}
}

// TestLastGoodRevisionServesFreshOnes: while the template of a set is broken, its
// sandboxes are made from the revision before, and so are those of claims.
func TestLastGoodRevisionServesFreshOnes(t *testing.T) {
	for name, patch := range map[string]string{"patched": spotPatch, "the template as it is": ""} {
		t.Run(name, func(t *testing.T) {
			s := start(t, withSyncWindow(time.Millisecond))
			template := s.Template(t, namespace, "python")
			set := s.SetOf(t, template, "pool", patch, 1)
			set.Status.CurrentRevision = podtemplate.CurrentRevision(set, set.Status.UpdateRevision)
			if _, err := s.Client.AgentsV1alpha1().SandboxSets(namespace).UpdateStatus(t.Context(), set, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Delete(t.Context(), "python", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			create(t, s, testutil.Claim(set, "cold", 1, timeout(expect.Patience)))
			raw := string(freshOf(t, s, 1)[0].Spec.Template.Raw)
			if !strings.Contains(raw, "busybox") || strings.Contains(raw, "spot") != (patch != "") {
				t.Errorf("template is %s", raw)
			}
		})
	}
}

// TestDryRunOverSeveralPools shows what a claim would get, and takes nothing.
func TestDryRunOverSeveralPools(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "python")
	s.Stock(t, s.SetOf(t, template, "a", "", 1), 0, 1)
	s.Stock(t, s.SetOf(t, template, "b", spotPatch, 2), 0, 2)
	known(t, s, 3)
	shown, err := claims(s).Create(t.Context(), ofTemplate("dry", "python", 2, fails), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, pools(shown)); diff != "" || testutil.Completed(shown) != "" {
		t.Errorf("shows %s, from (-want +got):\n%s", shown.Status.Phase, diff)
	}
	_, err = claims(s).Create(t.Context(), ofTemplate("dry", "python", 4, fails), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "SandboxTemplate python has 3 of 4 sandboxes available") {
		t.Errorf("of more than there is: %v", err)
	}
	create(t, s, ofTemplate("real", "python", 3, fails, allOrNothing))
	checkInvariants(t, s)
}
