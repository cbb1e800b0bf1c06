// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

var birth = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// knownSets are the sets that there are.
type knownSets []*v1alpha1.SandboxSet

func (k *knownSets) change(set *v1alpha1.SandboxSet) { *k = append(*k, set) }

// Set implements claims.Sets.
func (k *knownSets) Set(namespace, name string) *v1alpha1.SandboxSet {
	for _, set := range *k {
		if set.Namespace == namespace && set.Name == name {
			return set
		}
	}
	return nil
}

// Using implements claims.Sets.
func (k *knownSets) Using(namespace, template string) []*v1alpha1.SandboxSet {
	var using []*v1alpha1.SandboxSet
	for _, set := range *k {
		if set.Namespace == namespace && v1alpha1.SandboxTemplateOf(set) == template {
			using = append(using, set)
		}
	}
	return using
}

// agentPool makes a set of a template known, and returns a ready sandbox of it.
func agentPool(sets *knownSets, namespace, pool, template string) *v1alpha1.Sandbox {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pool, ResourceVersion: "1"}}
	set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	sets.change(set)
	sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: pool + "-1", CreationTimestamp: metav1.NewTime(birth.Add(-time.Hour)),
		Labels: map[string]string{
			v1alpha1.LabelSandboxPool: pool, v1alpha1.LabelSandboxTemplate: v1alpha1.TemplateLabel(template), v1alpha1.LabelTemplateHash: "1",
		},
	}}
	sb.Status.Phase, sb.Status.SandboxIP = v1alpha1.SandboxRunning, "10.0.0.1"
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, LastTransitionTime: metav1.NewTime(birth.Add(-time.Hour + 3*time.Second)),
	})
	return sb
}

// readied is the plan that makes a new claim of agent-sandbox Ready with a sandbox.
func readied(t *testing.T, sb *v1alpha1.Sandbox, annotations map[string]string) *plan.Plan {
	t.Helper()
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: sb.Namespace, Name: "claim", UID: "uid", CreationTimestamp: metav1.NewTime(birth),
		Labels:      map[string]string{v1alpha1.AgentLabelCreatedBy: "python-client"},
		Annotations: map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup},
	}}
	maps.Copy(claim.Annotations, annotations)
	marks, err := plan.NewMarks(claim)
	if err != nil {
		t.Fatal(err)
	}
	s := plan.State{Claim: claim, New: true, Start: birth, Now: birth, Room: 127}
	p, err := plan.Assess(s).Next(plan.Offer{Candidates: []plan.Candidate{{Sandbox: sb, Lock: "lock"}}}, marks)
	if err != nil || !p.BecomesReady() {
		t.Fatalf("planned %+v, %v", p, err)
	}
	return p
}

// histogram returns how often something was observed, and the sum of it.
func histogram(t *testing.T, vec *metrics.HistogramVec, labels ...string) (count uint64, sum float64) {
	t.Helper()
	observer := vec.WithLabelValues(labels...)
	count, err := testutil.GetHistogramMetricCount(observer)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err = testutil.GetHistogramMetricValue(observer); err != nil {
		t.Fatal(err)
	}
	return count, sum
}

// A claim is measured from when the server saw it; what clients say of it is believed
// within reason.
func TestStartupLatencies(t *testing.T) {
	Register()
	at := func(d time.Duration) string { return birth.Add(d).Format(time.RFC3339Nano) }
	for name, tc := range map[string]struct {
		client string
		want   float64 // milliseconds; 0 is not counted
	}{
		"before the server saw it": {at(-250 * time.Millisecond), 500},
		"with another zone":        {birth.In(time.FixedZone("", 3600)).Format(time.RFC3339Nano), 250},
		"a clock that is ahead":    {at(100 * time.Millisecond), 150},
		"the future":               {at(time.Second), 0},
		"long ago":                 {"1970-01-01T00:00:00Z", 0},
		"six minutes ago":          {at(-6 * time.Minute), 0},
		"no time":                  {"now", 0},
		"none":                     {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var sets knownSets
			sb := agentPool(&sets, "ns", "pool", "latencies")
			before := func(vec *metrics.HistogramVec, labels ...string) func() (uint64, float64) {
				count, sum := histogram(t, vec, labels...)
				return func() (uint64, float64) {
					now, total := histogram(t, vec, labels...)
					return now - count, total - sum
				}
			}
			byController := before(claimControllerStartup, "warm", "latencies")
			byClient := before(clientClaimStartup, "warm", "latencies")
			byWebhook := before(claimStartup, "warm", "latencies")
			created := before(agentCreation, "ns", "warm", "latencies")
			p := readied(t, sb, map[string]string{
				v1alpha1.AgentAnnotationFirstObserved:   at(0),
				v1alpha1.AgentAnnotationClientRequested: tc.client,
				v1alpha1.AgentAnnotationWebhookObserved: tc.client,
			})
			ObserveWritten(p, &sets, birth.Add(250*time.Millisecond))
			if n, sum := byController(); n != 1 || sum != 250 {
				t.Errorf("since the server saw it: %d, %v ms", n, sum)
			}
			if n, sum := created(); n != 1 || sum != 3000 {
				t.Errorf("of its sandbox: %d, %v ms", n, sum)
			}
			for who, measured := range map[string]func() (uint64, float64){"client": byClient, "webhook": byWebhook} {
				if n, sum := measured(); sum != tc.want || n != map[bool]uint64{true: 1}[tc.want > 0] {
					t.Errorf("since the %s said: %d, %v ms", who, n, sum)
				}
			}
		})
	}
}

// Where nothing is noted on claims, the controller's latency is measured all the same; a
// sandbox that was ready long after it was made did not start for so long.
func TestStartupWithoutAnnotations(t *testing.T) {
	Register()
	var sets knownSets
	sb := agentPool(&sets, "ns", "pool", "unobserved")
	sb.CreationTimestamp = metav1.NewTime(birth.Add(-50 * time.Hour))
	ObserveWritten(readied(t, sb, nil), &sets, birth.Add(time.Second))
	if n, _ := histogram(t, claimControllerStartup, "warm", "unobserved"); n != 1 {
		t.Errorf("%d claims were measured", n)
	}
	if n, sum := histogram(t, agentCreation, "ns", "warm", "unobserved"); n != 0 {
		t.Errorf("the start of its sandbox took %v ms", sum)
	}
	ours := readied(t, sb, map[string]string{v1alpha1.AnnotationAPI: "other"})
	ObserveWritten(ours, &sets, birth.Add(time.Second))
	if n, _ := histogram(t, claimControllerStartup, "warm", "unobserved"); n != 1 {
		t.Errorf("a claim of our own API was measured: %d", n)
	}
}

// Each sandbox that a claim is given is counted by what exists.
func TestGivenSandboxes(t *testing.T) {
	Register()
	var sets knownSets
	made := agentPool(&sets, "given", "pool", "python")
	delete(made.Labels, v1alpha1.LabelTemplateHash)
	strange := agentPool(&sets, "given", "pool", "python")
	strange.Labels = map[string]string{v1alpha1.LabelSandboxPool: "invented"}
	strange.Status.Conditions = nil
	p := readied(t, agentPool(&sets, "given", "pool", "python"), nil)
	p.Bound, p.Made = append(p.Bound, p.Bound[0], strange), []*v1alpha1.Sandbox{made}
	p.Claim.Labels[v1alpha1.AgentLabelCreatedBy] = "whoever"
	observeGiven(measuredSources, p, &sets, birth)
	got := map[string]float64{}
	for _, labels := range [][]string{
		{"given", "python", "warm", "pool", "ready", "unknown"},
		{"given", "python", "cold", "none", "not_ready", "unknown"},
		{"given", "__unknown__", "warm", "__other__", "not_ready", "unknown"},
	} {
		value, err := testutil.GetCounterMetricValue(agentClaims.WithLabelValues(labels...))
		if err != nil {
			t.Fatal(err)
		}
		got[fmt.Sprint(labels)] = value
	}
	want := map[string]float64{
		"[given python warm pool ready unknown]":               2,
		"[given python cold none not_ready unknown]":           1,
		"[given __unknown__ warm __other__ not_ready unknown]": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
}

// However many templates and pools a user makes, series are few, and others have theirs.
func TestAgentFiguresAreBounded(t *testing.T) {
	Register()
	templates, sources := newMeasured(claims.OtherFigures, forgetTemplate), newMeasured(claims.OtherFigures, forgetSource)
	series := func() int {
		all := 0
		for _, name := range []string{"agent_sandbox_claim_controller_startup_latency_ms", "agent_sandbox_creation_latency_ms", "agent_sandbox_claim_creation_total"} {
			all += gathered(t, name)
		}
		return all
	}
	before := series()
	observe := func(namespace, pool, template string, now time.Time) {
		var sets knownSets
		p := readied(t, agentPool(&sets, namespace, pool, template), nil)
		observeGiven(sources, p, &sets, now)
		observeFirstReady(templates, p, now)
	}
	const made = 300
	for i := range made {
		observe("greedy", fmt.Sprintf("pool-%d", i), fmt.Sprintf("template-%d", i), birth)
	}
	if got := series() - before; got > 3*(maxMeasuredPoolsOfNamespace+1) {
		t.Errorf("one namespace has %d series", got)
	}
	observe("modest", "pool", "template-0", birth)
	if n, _ := histogram(t, agentCreation, "modest", "warm", "template-0"); n != 1 {
		t.Errorf("the other namespace has %d", n)
	}
	if n, _ := histogram(t, claimControllerStartup, "warm", "template-0"); n != 2 {
		t.Errorf("the template that both have was counted %d times", n)
	}
	for i := range made {
		observe(fmt.Sprintf("ns-%d", i), "pool", "many", birth)
	}
	if got := series() - before; got > 3*maxMeasuredPools+3 {
		t.Errorf("all have %d series", got)
	}

	// What is idle goes, but not the series that another namespace shares.
	later := birth.Add(idleMeasured + time.Second)
	observe("modest", "pool", "template-0", later)
	for i := range made {
		observe("greedy", fmt.Sprintf("new-%d", i), fmt.Sprintf("new-%d", i), later)
	}
	if n, _ := histogram(t, claimControllerStartup, "warm", "template-0"); n != 3 {
		t.Errorf("the template that both had was counted %d times", n)
	}
	if n, _ := histogram(t, claimControllerStartup, "warm", "template-1"); n != 0 {
		t.Errorf("an idle template is still counted %d times", n)
	}
}

// gathered is how many series a metric has.
func gathered(t *testing.T, name string) int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return len(family.GetMetric())
		}
	}
	return 0
}

// TestGivenToEitherAPI: what a pool gives is counted whichever API the claim is of.
func TestGivenToEitherAPI(t *testing.T) {
	Register()
	var sets knownSets
	sb := agentPool(&sets, "either", "pool", "both")
	counted := func(api string) func() float64 {
		by := "unknown"
		if api == v1alpha1.AgentsGroup {
			by = "python-client"
		}
		value := func() float64 {
			v, err := testutil.GetCounterMetricValue(agentClaims.WithLabelValues("either", "both", "warm", "pool", "ready", by))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		before := value()
		return func() float64 { return value() - before }
	}
	for _, api := range []string{v1alpha1.AgentsGroup, ""} {
		n := counted(api)
		p := readied(t, sb, nil)
		if api == "" { // as it is of our own API
			delete(p.Claim.Annotations, v1alpha1.AnnotationAPI)
			delete(p.Claim.Labels, v1alpha1.AgentLabelCreatedBy)
		}
		ObserveWritten(p, &sets, birth)
		if got := n(); got != 1 {
			t.Errorf("a sandbox for a claim of %q is counted %v times", api, got)
		}
	}
}
