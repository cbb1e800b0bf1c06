// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPrune(t *testing.T) {
	hours := func(hours ...int) []string {
		var names []string
		for _, h := range hours {
			names = append(names, newName(start.Add(-time.Duration(h)*time.Hour), int64(1000-h), false))
		}
		return names
	}
	breached := func(hours ...int) []string {
		var names []string
		for _, h := range hours {
			names = append(names, newName(start.Add(-time.Duration(h)*time.Hour), int64(1000-h), true))
		}
		return names
	}
	good, _ := parseName(hours(0)[0])
	for name, tc := range map[string]struct {
		there     []string
		retention Retention
		deleted   []string
		wantErr   bool
	}{
		"fewer than are kept":                   {there: hours(0, 6), retention: Retention{Count: 2}},
		"more":                                  {there: hours(0, 6, 12, 18), retention: Retention{Count: 2}, deleted: hours(12, 18)},
		"young ones stay":                       {there: hours(0, 6, 12, 18), retention: Retention{Count: 1, Age: 12 * time.Hour}, deleted: hours(18)},
		"the newest is old":                     {there: hours(500), retention: Retention{Count: 1, Age: time.Hour}},
		"other files stay":                      {there: append(hours(0, 6), "notes.txt", "sandlot-x.backup"), retention: Retention{Count: 1}, deleted: hours(6)},
		"not those of the future, nor for them": {there: hours(0, 6, 12, -2, -24, -500), retention: Retention{Count: 2}, deleted: hours(12)},
		"clocks differ":                         {there: hours(-1, 0, 6), retention: Retention{Count: 2}, deleted: hours(6)},
		"never the new one":                     {there: hours(-1, 0, 6), retention: Retention{Count: 1}, deleted: hours(6)},
		"of those of a broken store the newest": {there: slices.Concat(hours(0, 18, 24), breached(6, 12)), retention: Retention{Count: 2}, deleted: slices.Concat(breached(12), hours(24))},
		"never all":                             {there: hours(0), retention: Retention{}, wantErr: true},
		"no age before the day":                 {there: hours(0), retention: Retention{Count: 1, Age: -time.Hour}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range tc.there {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			deleted, err := Prune(t.Context(), folder(dir), tc.retention, good, start)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v", err)
			}
			var names []string
			for _, b := range deleted {
				names = append(names, b.Name)
			}
			if diff := cmp.Diff(tc.deleted, names); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			left, err := folder(dir).Names(t.Context())
			if err != nil || len(left) != len(tc.there)-len(tc.deleted) {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}
