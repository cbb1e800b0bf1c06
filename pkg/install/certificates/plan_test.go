// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start = time.Date(2031, 3, 1, 12, 0, 0, 0, time.UTC)

	never  settled = func(time.Time) bool { return false }
	always settled = func(since time.Time) bool { return !since.IsZero() }
)

// caOf makes a CA that is valid for a time from now, or fails the test.
func caOf(t *testing.T, now time.Time, validity time.Duration) *keyPair {
	t.Helper()
	ca, err := newCA("test-ca", now, validity)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestSignerStep(t *testing.T) {
	t.Parallel()
	fresh, next := caOf(t, start, 30*day), caOf(t, start, 30*day)
	due, ended := caOf(t, start.Add(-20*day), 30*day), caOf(t, start.Add(-30*day), 30*day)
	nearlyDue := caOf(t, start.Add(-20*day+time.Second), 30*day)
	future := caOf(t, start.Add(2*day), 30*day)

	for name, tc := range map[string]struct {
		signer  signer
		settled settled
		want    signerStep
	}{
		"nothing":                             {signer{}, always, signerMake},
		"fresh":                               {signer{current: fresh, published: start}, always, signerKeep},
		"just before two thirds":              {signer{current: nearlyDue, published: start}, always, signerKeep},
		"after two thirds":                    {signer{current: due, published: start}, always, signerMakeNext},
		"asked for":                           {signer{current: fresh, published: start, requested: true}, always, signerMakeNext},
		"asked for again":                     {signer{current: fresh, next: next, requested: true}, always, signerKeep},
		"next not published":                  {signer{current: due, next: next}, always, signerKeep},
		"next not settled":                    {signer{current: due, next: next, nextPublished: start}, never, signerKeep},
		"next settled":                        {signer{current: due, next: next, nextPublished: start}, always, signerPromote},
		"next settled, though current is new": {signer{current: fresh, next: next, nextPublished: start}, always, signerPromote},
		"next has ended while it waited":      {signer{current: due, next: ended, nextPublished: start}, always, signerMakeNext},
		"current has ended":                   {signer{current: ended}, always, signerMake},
		"current has ended, next waits":       {signer{current: ended, next: next}, never, signerPromote},
		"current is lost, next waits":         {signer{next: next}, never, signerPromote},
		"both have ended":                     {signer{current: ended, next: ended}, always, signerMake},
		"current is of the future":            {signer{current: future}, always, signerMake},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.signer.step(start, tc.settled); got != tc.want {
				t.Errorf("step %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTrusted(t *testing.T) {
	t.Parallel()
	current, next, old := caOf(t, start, 30*day), caOf(t, start, 30*day), caOf(t, start.Add(-20*day), 30*day)
	ended := caOf(t, start.Add(-30*day), 30*day)

	for name, tc := range map[string]struct {
		signer signer
		known  []*x509.Certificate
		want   []*x509.Certificate
	}{
		"first":             {signer{current: current}, nil, []*x509.Certificate{current.cert}},
		"next is added":     {signer{current: current, next: next}, []*x509.Certificate{current.cert}, []*x509.Certificate{current.cert, next.cert}},
		"old stays":         {signer{current: current}, []*x509.Certificate{old.cert}, []*x509.Certificate{current.cert, old.cert}},
		"nothing twice":     {signer{current: current}, []*x509.Certificate{old.cert, current.cert, old.cert}, []*x509.Certificate{current.cert, old.cert}},
		"ended goes":        {signer{current: current}, []*x509.Certificate{ended.cert, old.cert}, []*x509.Certificate{current.cert, old.cert}},
		"ended signer goes": {signer{current: ended, next: next}, nil, []*x509.Certificate{next.cert}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.signer.trusted(tc.known, start)
			if diff := cmp.Diff(subjects(tc.want), subjects(got)); diff != "" || len(got) != len(tc.want) {
				t.Fatalf("-want +got\n%s", diff)
			}
			for i := range got {
				if !got[i].Equal(tc.want[i]) {
					t.Errorf("the CA at %d is another one", i)
				}
			}
		})
	}
}

func subjects(certs []*x509.Certificate) []string {
	names := make([]string, 0, len(certs))
	for _, cert := range certs {
		names = append(names, cert.Subject.CommonName)
	}
	return names
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	ca, other := caOf(t, start, 300*day), caOf(t, start, 300*day)
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	want := target{secret: "s", names: []string{"a.example", "b.example"}, usages: server}
	made := func(by *keyPair, t2 target, now time.Time) *keyPair {
		pair, err := issue(by, t2, now, 30*day)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	bundle := []*x509.Certificate{ca.cert, other.cert}
	good := made(ca, want, start)

	for name, tc := range map[string]struct {
		have      *keyPair
		target    target
		bundle    []*x509.Certificate
		unsettled bool
		at        time.Duration
		want      string
	}{
		"none":                                 {nil, want, bundle, true, 0, reasonMissing},
		"good":                                 {good, want, bundle, false, 0, ""},
		"just before two thirds":               {good, want, bundle, false, 20*day - time.Second, ""},
		"after two thirds":                     {good, want, bundle, false, 20 * day, reasonEnding},
		"after two thirds, same unsettled CA":  {good, want, bundle, true, 20 * day, reasonEnding},
		"expired":                              {good, want, bundle, true, 30*day + time.Second, reasonInvalid},
		"of a CA that is not trusted":          {good, want, []*x509.Certificate{other.cert}, true, 0, reasonInvalid},
		"names in another order":               {good, target{"s", []string{"a.example", "b.example"}, server}, bundle, false, 0, ""},
		"a further name":                       {good, target{"s", []string{"a.example", "b.example", "c.example"}, server}, bundle, false, 0, reasonNames},
		"a name less":                          {good, target{"s", []string{"a.example"}, server}, bundle, false, 0, reasonNames},
		"another subject":                      {good, target{"s", []string{"b.example", "a.example"}, server}, bundle, false, 0, reasonNames},
		"a further usage":                      {good, target{"s", want.names, both}, bundle, false, 0, reasonInvalid},
		"of the CA before":                     {made(other, want, start), want, bundle, false, 0, reasonOldSigner},
		"of the CA before, new one unsettled":  {made(other, want, start), want, bundle, true, 0, ""},
		"ending, and the new CA is unsettled":  {made(other, want, start), want, bundle, true, 20 * day, ""},
		"expired, and the new CA is unsettled": {made(other, want, start), want, bundle, true, 31 * day, reasonInvalid},
		"names and the new CA is unsettled":    {made(other, want, start), target{"s", []string{"c.example"}, server}, bundle, true, 0, ""},
		"a CA in its place":                    {other, want, bundle, false, 0, reasonNames},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := renewal(tc.have, tc.target, tc.bundle, ca, !tc.unsettled, start.Add(tc.at))
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// From beginning to end, for ten years, with the two authorities' times: whatever
// certificate is served was verified by what a client trusts at that moment, and
// by what one trusts that looked a whole overlap ago.
func TestRotationNeverLosesAClient(t *testing.T) {
	t.Parallel()
	const (
		overlap      = 12 * time.Hour
		caValidity   = 90 * day
		leafValidity = 30 * day
	)
	want := target{secret: "s", names: []string{"a.example"}, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	var (
		s           signer
		bundle, old []*x509.Certificate
		leaf        *keyPair
		cas, leaves int
	)
	for now := start; now.Before(start.Add(365 * day)); now = now.Add(overlap) {
		ok := settled(func(since time.Time) bool { return !since.IsZero() && !now.Before(since.Add(overlap)) })
		for step := s.step(now, ok); step != signerKeep; step = s.step(now, ok) {
			switch step {
			case signerMake:
				s, cas = signer{current: caOf(t, now, caValidity)}, cas+1
			case signerMakeNext:
				s.next, s.nextPublished, cas = caOf(t, now, caValidity), time.Time{}, cas+1
			case signerPromote:
				s = signer{current: s.next, published: s.nextPublished}
			}
		}
		old, bundle = bundle, s.trusted(bundle, now)
		if reason := renewal(leaf, want, bundle, s.current, ok(s.published), now); reason != "" {
			if reason == reasonInvalid {
				t.Fatalf("%s: the certificate was replaced only when no client accepted it any more", now)
			}
			made, err := issue(s.current, want, now, leafValidity)
			if err != nil {
				t.Fatal(err)
			}
			leaf, leaves = made, leaves+1
		}
		if s.published.IsZero() {
			s.published = now
		}
		if s.next != nil && s.nextPublished.IsZero() {
			s.nextPublished = now
		}
		if !leaf.serves(want, bundle, now) {
			t.Fatalf("%s: the certificate is not accepted by who trusts the bundle", now)
		}
		if old != nil && !leaf.serves(want, old, now) {
			t.Fatalf("%s: the certificate is not accepted by who trusts what the bundle was %s ago", now, overlap)
		}
		if len(bundle) > 3 {
			t.Fatalf("%s: the bundle grows: %d CAs", now, len(bundle))
		}
	}
	if cas < 5 || leaves < 17 {
		t.Errorf("%d CAs and %d certificates in a year, which is no rotation", cas, leaves)
	}
}
