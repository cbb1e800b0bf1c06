// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/sandlot-io/sandlot/pkg/store/etcdtxn"
)

// TestCommitsAreCounted: a commit is counted by its result, and so is each object that had changed.
func TestCommitsAreCounted(t *testing.T) {
	Register()
	moved := func(indices ...int) error {
		conflict := &etcdtxn.ConflictError{}
		for _, i := range indices {
			conflict.Modified = append(conflict.Modified, etcdtxn.Modified{Index: i})
		}
		return fmt.Errorf("committing: %w", conflict)
	}
	cases := map[string]struct {
		err               error
		withoutClaim      bool
		result            string
		claims, sandboxes float64 // that moved
	}{
		"committed":              {result: resultCommitted},
		"the claim moved":        {err: moved(0), result: resultConflict, claims: 1},
		"two sandboxes moved":    {err: moved(1, 2), result: resultConflict, sandboxes: 2},
		"both":                   {err: moved(0, 2), result: resultConflict, claims: 1, sandboxes: 1},
		"a sandbox by itself":    {err: moved(0), withoutClaim: true, result: resultConflict, sandboxes: 1},
		"too large":              {err: fmt.Errorf("%w", etcdtxn.ErrTooLarge), result: resultTooLarge},
		"no answer":              {err: fmt.Errorf("%w", etcdtxn.ErrUnknownOutcome), result: resultUnknown},
		"refused by etcd itself": {err: errors.New("no permission"), result: resultError},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			count := func() [3]float64 {
				commits, err := testutil.GetHistogramMetricCount(transactionDuration.WithLabelValues(tc.result))
				if err != nil {
					t.Fatal(err)
				}
				claims, err := testutil.GetCounterMetricValue(transactionConflicts.WithLabelValues(movedClaim))
				if err != nil {
					t.Fatal(err)
				}
				sandboxes, err := testutil.GetCounterMetricValue(transactionConflicts.WithLabelValues(movedSandbox))
				if err != nil {
					t.Fatal(err)
				}
				return [3]float64{float64(commits), claims, sandboxes}
			}
			before := count()
			if got := ObserveCommit(tc.err, !tc.withoutClaim, time.Second); got != tc.result {
				t.Errorf("the result is %q, want %q", got, tc.result)
			}
			want := [3]float64{before[0] + 1, before[1] + tc.claims, before[2] + tc.sandboxes}
			if got := count(); got != want {
				t.Errorf("commits and what moved went from %v to %v, want %v", before, got, want)
			}
		})
	}
}
