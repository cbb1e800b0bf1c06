// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// However many sets and namespaces there are, the figures are of so many.
func TestMeasuredPoolsAreBounded(t *testing.T) {
	registerPoolMetrics()
	m := newMeasured(otherPools, measuredPools.forget)
	now := time.Now()
	series := func(set string) types.NamespacedName { return types.NamespacedName{Namespace: "busy", Name: set} }
	for i := range 10000 {
		observePool(m, series(fmt.Sprintf("set-%d", i)), OutcomeBound, time.Millisecond, now)
	}
	if got := len(m.places); got != maxMeasuredPoolsOfNamespace+1 {
		t.Errorf("one namespace has %d places", got)
	}
	if got := countedBound(t, "busy", otherPools); got != 10000-maxMeasuredPoolsOfNamespace {
		t.Errorf("%v claims are of the other pools", got)
	}
	for i := range 10000 {
		observePool(m, types.NamespacedName{Namespace: fmt.Sprintf("ns-%d", i), Name: "pool"}, OutcomeBound, time.Millisecond, now)
	}
	if got := len(m.places); got != maxMeasuredPools {
		t.Errorf("all have %d places", got)
	}
	if got := countedBound(t, otherPools, otherPools); got != 10000-(maxMeasuredPools-maxMeasuredPoolsOfNamespace-1) {
		t.Errorf("%v claims are of other namespaces", got)
	}

	// What is idle makes room, and its series go.
	later := now.Add(idleMeasured + time.Second)
	observePool(m, series("set-0"), OutcomeBound, time.Millisecond, later)
	for i := range 10000 {
		observePool(m, series(fmt.Sprintf("new-%d", i)), OutcomeBound, time.Millisecond, later)
	}
	if got := countedBound(t, "busy", "set-0"); got != 2 {
		t.Errorf("the pool that is in use has %v claims", got)
	}
	if got := countedBound(t, "busy", "new-0"); got != 1 {
		t.Errorf("the new pool has %v claims", got)
	}
	if got := countedBound(t, "busy", "set-1"); got != 0 { // looks, and so makes it
		t.Errorf("the idle pool still has %v claims", got)
	}
	if m.of["busy"] != maxMeasuredPoolsOfNamespace || len(m.places) != maxMeasuredPools {
		t.Errorf("places are %d, of the namespace %d", len(m.places), m.of["busy"])
	}
}

func countedBound(t *testing.T, namespace, set string) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(poolClaims.WithLabelValues(OutcomeBound, namespace, set))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A claim is of the pool that it names, never of a name that is only its user's.
func TestNamedPool(t *testing.T) {
	var sets knownSets
	for _, set := range []struct{ name, template string }{{"pool", ""}, {"only", "one"}, {"a", "two"}, {"b", "two"}} {
		s := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: set.name, ResourceVersion: "1"}}
		if set.template != "" {
			s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: set.template}
		}
		sets.change(s)
	}
	byRef := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	for ref, want := range map[string]string{"b": "b", "nothing": otherPools} {
		byRef.Spec.WarmPoolRef = &v1alpha1.SandboxClaimWarmPoolRef{Name: ref}
		if got := namedPool(byRef, &sets); got.Name != want {
			t.Errorf("warmPoolRef %s is of %v", ref, got)
		}
	}
	for _, tc := range []struct{ asked, warmPool, want string }{
		{"pool", "", "pool"},
		{"pool", v1alpha1.WarmPoolNone, "pool"},
		{"one", "", "only"},
		{"two", "", otherPools},
		{"two", "b", "b"},
		{"two", "nothing", otherPools},
		{"nothing", "", otherPools},
	} {
		claim := &v1alpha1.SandboxClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
			Spec:       v1alpha1.SandboxClaimSpec{TemplateName: tc.asked, WarmPool: tc.warmPool},
		}
		if got, want := namedPool(claim, &sets), (types.NamespacedName{Namespace: "ns", Name: tc.want}); got != want {
			t.Errorf("%+v is of %v", tc, got)
		}
	}
}
