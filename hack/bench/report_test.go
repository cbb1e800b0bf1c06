// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	r := &result{Case: "direct/c1", Clients: 1, claimFigures: &claimFigures{Claims: 10, P50Ratio: 1.23456, ClaimsPerS: 1234.56}}
	r.judge(atMost("p50_ratio", r.P50Ratio, 1.3))
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"case":"direct/c1"`, `"clients":1,`, `"claims_per_s":1235,`, `"p50_ratio":1.235,`, `"goal":"p50_ratio <= 1.3","ok":true}` + "\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "etcd") {
		t.Errorf("figures of another case in %s", out.String())
	}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		failed int
		goals  []goal
		want   bool
	}{
		"at the limit":   {0, []goal{atMost("a", 2, 2), atLeast("b", 3, 3)}, true},
		"too much":       {0, []goal{atMost("a", 2.1, 2)}, false},
		"too little":     {0, []goal{atLeast("a", 1.9, 2)}, false},
		"one of two":     {0, []goal{atMost("a", 1, 2), atMost("b", 3, 2)}, false},
		"failed claims":  {1, []goal{atMost("a", 1, 2)}, false},
		"nothing to say": {0, []goal{atMost("a", number(math.NaN()), 2)}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &result{claimFigures: &claimFigures{Failed: tc.failed}}
			if r.judge(tc.goals...); *r.OK != tc.want {
				t.Errorf("got %v", *r.OK)
			}
		})
	}
}

func TestWants(t *testing.T) {
	tests := map[string][]string{
		"*":                  caseNames(),
		"direct/c1":          {"direct/c1"},
		"direct/*":           {"direct/c1", "direct/c64", "direct/c64+refill"},
		"batch/*,pool/100k":  {"batch/100", "pool/100k"},
		"etcd/*/*,direct/c1": {"etcd/txn/c1", "etcd/txn/c64", "direct/c1"},
	}
	for cases, want := range tests {
		o := &settings{cases: cases}
		var got []string
		for _, name := range caseNames() {
			if o.wants(name) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("-cases %s: got %v, want %v", cases, got, want)
		}
	}
}

func TestLastLines(t *testing.T) {
	l := &lastLines{}
	for _, text := range []string{"0\n1\n2\n3\nfo", "ur\n" + strings.Repeat("x", 1000), "\nend"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("wrote %d of %q: %v", n, text, err)
		}
	}
	if want := "3\nfour\n" + strings.Repeat("x", longestLine); l.String() != want {
		t.Errorf("got %q", l)
	}
}
