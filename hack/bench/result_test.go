// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	r := &result{Case: "direct/c1", Clients: 1}
	r.set("p50_ratio", 1.23456)
	r.set("claims_per_s", 1234.56)
	r.setAll("own", counts{"create sandboxes": 2})
	if err := r.judge("p50_ratio <= 1.3"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `{"case":"direct/c1","clients":1,"goal":"p50_ratio <= 1.3","ok":true,` +
		`"claims_per_s":1235,"own":{"create sandboxes":2},"p50_ratio":1.235}` + "\n"
	if out.String() != want {
		t.Errorf("got %s", out.String())
	}
}

func TestFigureToldTwice(t *testing.T) {
	r := &result{}
	r.set("a", 1)
	if caught(func() { r.set("a", 2) }) == nil {
		t.Error("no error")
	}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		failed float64
		goals  string
		want   bool
	}{
		"at the limit":   {0, "two <= 2, three of them >= 3", true},
		"too much":       {0, "two <= 1.9", false},
		"too little":     {0, "two >= 2.1", false},
		"one of two":     {0, "two <= 2, three of them <= 2", false},
		"failed claims":  {1, "two <= 2", false},
		"nothing to say": {0, "four <= 4", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &result{}
			r.set("failed", tc.failed)
			r.set("two", 2)
			r.set("three of them", 3)
			if err := r.judge(tc.goals); err != nil || *r.OK != tc.want {
				t.Errorf("got %v, %v", *r.OK, err)
			}
		})
	}
	if r := (&result{}); r.judge("") != nil || r.OK != nil {
		t.Error("a case without a goal is judged")
	}
}

// TestGoals: each case has a name of its own, and goals that can be read.
func TestGoals(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases {
		if err := (&result{}).judge(c.goals); err != nil || seen[c.name] {
			t.Errorf("%s: %v", c.name, err)
		}
		seen[c.name] = true
	}
}

func TestWants(t *testing.T) {
	tests := map[string][]string{
		"*":                  caseNames(false),
		"direct/c1":          {"direct/c1"},
		"direct/*":           {"direct/c1", "direct/c64", "direct/c64+refill"},
		"batch/*,pool/100k":  {"batch/100", "pool/100k"},
		"etcd/*/*,direct/c1": {"etcd/txn/c1", "etcd/txn/c64", "direct/c1"},
		"gateway/*":          {"gateway/routes", "gateway/route", "gateway/create", "gateway/create-c64"},
	}
	for cases, want := range tests {
		o := &settings{cases: cases}
		var got []string
		for _, name := range caseNames(cases == "gateway/*") {
			if o.wants(name) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("-cases %s: got %v, want %v", cases, got, want)
		}
	}
}

// TestStage: what fails ends a case, and what it has started ends all the same, the last first.
func TestStage(t *testing.T) {
	var ended []int
	one := &stage{}
	failed := errors.New("no stock")
	err := one.run(func() {
		one.Cleanup(func() { ended = append(ended, 1) })
		one.Cleanup(func() { ended = append(ended, 2); one.Fatal("not stopped") })
		one.Cleanup(func() { ended = append(ended, 3); panic("a bug") })
		check(failed)
		t.Error("the case continues")
	})
	if !errors.Is(err, failed) || !strings.Contains(err.Error(), "not stopped") || !strings.Contains(err.Error(), "a bug") || !one.Failed() {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(ended, []int{3, 2, 1}) {
		t.Errorf("got %v", ended)
	}
}
