// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestOwn: who continues when several restore.
func TestOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		jobs, active string
		want         error
	}{
		"the first":                       {jobs: "me 1"},
		"no Job has stopped anything":     {jobs: "me 1\nlater 1"},
		"its own":                         {jobs: "before 1\nme 1\nlater 1", active: "me"},
		"one before it was at it":         {jobs: "before 1\nme 1", active: "before"},
		"one of long ago":                 {jobs: "me 1", active: "forgotten"},
		"one after it is at it":           {jobs: "me 1\nlater 3\nlatest 1", active: "later", want: ErrOvertaken},
		"another attempt":                 {jobs: "me 2", want: errRetried},
		"another attempt, which is at it": {jobs: "before 1\nme 2", active: "me", want: errRetried},
		"the Secret was emptied":          {want: errRetried},
		"lines that are not whole":        {jobs: "me\n\nme 1 "},
	} {
		s := state{self: attempt{"me", "1"}, begun: true, secret: &corev1.Secret{Data: map[string][]byte{keyJobs: []byte(tc.jobs), keyActive: []byte(tc.active)}}}
		if err := s.own(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
