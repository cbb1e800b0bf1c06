// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
)

// TestNamesOfFiguresAreUnique: encoding/json leaves out what two parts of a line name alike.
func TestNamesOfFiguresAreUnique(t *testing.T) {
	seen := map[string]string{}
	line := reflect.TypeFor[result]()
	for part := range line.Fields() {
		if !part.Anonymous {
			seen[part.Tag.Get("json")] = line.Name()
			continue
		}
		figures := part.Type.Elem()
		for field := range figures.Fields() {
			name := field.Tag.Get("json")
			if other, taken := seen[name]; taken || name == "" {
				t.Errorf("%s and %s have %q", other, figures.Name(), name)
			}
			seen[name] = figures.Name()
		}
	}
}

func TestGatewayCases(t *testing.T) {
	o := &settings{cases: "gateway/*"}
	var got []string
	for _, name := range clusterCaseNames() {
		if o.wants(name) {
			got = append(got, name)
		}
	}
	if want := []string{gatewayRoutes, gatewayRoute, gatewayCreate, gatewayCreateMany}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPace(t *testing.T) {
	p := newPace(4, 100) // each client 25 times a second
	now := time.Unix(100, 0)
	for client, want := range []time.Duration{0, 10, 20, 30} {
		if got := p.after(time.Time{}, now, client).Sub(now); got != want*time.Millisecond {
			t.Errorf("client %d begins after %s, want %d ms", client, got, want)
		}
	}
	// However late it is, the next time follows from the last one.
	if got := p.after(now, now.Add(time.Second), 1); !got.Equal(now.Add(40 * time.Millisecond)) {
		t.Errorf("the next operation begins at %s", got)
	}
	if err := p.wait(t.Context(), 0); err != nil || p.next[0].IsZero() {
		t.Errorf("the first client waits until %s, %v", p.next[0], err)
	}
	if _ = p.begin(t.Context()); !p.next[0].IsZero() {
		t.Error("the times of the last round are left")
	}
}

func TestParseStat(t *testing.T) {
	const text = "4242 (sand) lot (x) S 1 4242 4242 0 -1 4194560 900 0 3 0 150 25 0 0 20 0 9 0 1 2 3"
	if got, err := parseStat(text); err != nil || got != 1750*time.Millisecond {
		t.Errorf("got %s, %v", got, err)
	}
	for _, wrong := range []string{"", "1 (x) S 1 2", strings.Replace(text, "150", "many", 1)} {
		if got, err := parseStat(wrong); err == nil {
			t.Errorf("%q is %s", wrong, got)
		}
	}
}

func TestDifference(t *testing.T) {
	of := func(values ...int) (s series) {
		for _, value := range values {
			s = append(s, sample{latencies: ms(value)})
		}
		return s
	}
	// The medians differ by 2, and the median difference is 3.
	if got := difference(of(4, 9, 13), of(1, 8, 7), sample.p50); got != 3 {
		t.Errorf("got %g", got)
	}
}

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
	claim, err := team.claim(now)
	if err != nil {
		t.Fatal(err)
	}
	spec := claim.Spec
	if claim.Namespace != "team-a" || len(claim.Name) != 14 || claim.Annotations[client.AnnotationKey] == "" ||
		spec.TemplateName != setName || *spec.Replicas != 1 || spec.ReclaimPolicy != v1alpha1.ReclaimRetain || spec.Lifecycle == nil ||
		spec.Annotations[v1alpha1.AnnotationE2BKeyID] != team.keyID || !spec.ShutdownTime.Time.Equal(now.Add(e2bTimeout*time.Second)) {
		t.Errorf("got %+v", claim)
	}
}

func TestMeasureRoutes(t *testing.T) {
	figures, err := measureRoutes(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	if figures.Routes != 300 || figures.LearnedS <= 0 {
		t.Errorf("got %+v", figures)
	}
}

func TestFiguresOfRoute(t *testing.T) {
	arms := func(values ...int) (all []series) {
		for _, value := range values {
			all = append(all, series{{latencies: ms(value, value), elapsed: time.Duration(2*value) * time.Millisecond}})
		}
		return all
	}
	got := figuresOfRoute(arms(1, 2, 4), arms(5, 10, 20))
	if got.DirectP50 != 1 || got.ProxyAdded != 1 || got.RoutedAdded != 3 || got.RoutedPacedPerS != 250 ||
		got.ClosedProxyPerS != 100 || got.ClosedRoutedPerS != 50 || got.RoutedRateRatio != 0.5 {
		t.Errorf("got %+v", got)
	}
}
