// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
)

func TestMismatches(t *testing.T) {
	made := map[string]bool{"a": true, "b": true}
	for name, tc := range map[string]struct{ stored, want []string }{
		"as they should be": {[]string{"b", "a"}, nil},
		"one is not stored": {[]string{"a"}, []string{"b"}},
		"nobody was told":   {[]string{"a", "b", "c"}, []string{"c"}},
		"two have one id":   {[]string{"a", "b", "a"}, []string{"a"}},
	} {
		if got := mismatches(made, tc.stored); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestSameClaim(t *testing.T) {
	now := time.Unix(1e9, 0)
	team := &team{pool: pool{namespace: "team-a", size: 1}, keyID: "0123456789abcdef"}
	claim := team.claim(now)
	spec := claim.Spec
	if claim.Namespace != "team-a" || len(claim.Name) != 14 || claim.Annotations[client.AnnotationKey] == "" ||
		spec.TemplateName != setName || *spec.Replicas != 1 || spec.ReclaimPolicy != v1alpha1.ReclaimRetain || spec.Lifecycle == nil ||
		spec.Annotations[v1alpha1.AnnotationE2BKeyID] != team.keyID || !spec.ShutdownTime.Time.Equal(now.Add(e2bTimeout*time.Second)) {
		t.Errorf("got %+v", claim)
	}
}

func TestMeasureRoutes(t *testing.T) {
	r := &result{}
	measureRoutes(&stage{ctx: t.Context()}, r, 300)
	if r.value("routes") != 300 || !(r.value("routes_learned_s") > 0) {
		t.Errorf("got %+v", r)
	}
}

func TestFiguresOfRoute(t *testing.T) {
	arms := func(values ...int) (all []series) {
		for _, value := range values {
			all = append(all, series{{latencies: ms(value, value), elapsed: time.Duration(2*value) * time.Millisecond}})
		}
		return all
	}
	r := &result{}
	r.routes(arms(1, 2, 4), arms(5, 10, 20))
	for name, want := range map[string]float64{
		"direct_p50_ms": 1, "proxy_added_ms": 1, "routed_added_ms": 3, "routed_paced_per_s": 250,
		"closed_proxy_per_s": 100, "closed_routed_per_s": 50, "routed_rate_ratio": 0.5,
	} {
		if got := r.value(name); got != want {
			t.Errorf("%s: got %g, want %g", name, got, want)
		}
	}
}
