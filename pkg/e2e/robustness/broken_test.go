// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestBrokenBuilds removes one safety at a time from the API server, and requires that the checks of this
// package find that.
func TestBrokenBuilds(t *testing.T) {
	expect.LongOnly(t)
	const compare = "\t\tcompares = append(compares, clientv3.Compare(clientv3.ModRevision(w.key), \"=\", w.at))\n"
	for _, broken := range []struct {
		name   string
		change program.Change
		// faults are those that show it; all if there are none.
		faults []string
	}{
		{"sandboxes are bound at any revision", program.Change{
			File: "pkg/store/etcdtxn/txn.go", Before: compare,
			After: "\t\tif w.at == 0 || w.resource.resourcePrefix != \"/agents.kruise.io/sandboxes\" {\n\t" + compare + "\t\t}\n",
		}, []string{"killed controllers"}},
		{"claims are updated at any revision", program.Change{
			File: "pkg/store/etcdtxn/txn.go", Before: compare,
			After: "\t\tif w.at == 0 || w.resource.resourcePrefix != \"/agents.kruise.io/sandboxclaims\" {\n\t" + compare + "\t\t}\n",
		}, []string{"late requests", "lost answers"}},
		{"an unknown outcome is a failure", program.Change{
			File: "pkg/allocator/commit.go", Before: "return c.settle(ctx, txn, p, r, err)", After: "return nil, err",
		}, []string{"cut connections", "killed etcd"}},
		{"a transaction is settled without a write", program.Change{
			File: "pkg/store/etcdtxn/settle.go", Before: "if !t.inFlight {", After: "if true {",
		}, []string{"late requests"}},
		{"a guard is settled without a write", program.Change{
			File: "pkg/store/etcdtxn/guards.go", Before: "\tif inFlight {", After: "\tif false {",
		}, []string{"late requests"}},
	} {
		t.Run(broken.name, func(t *testing.T) {
			folder := t.TempDir()
			if err := program.BuildChanged(folder, broken.change, "sandlot-apiserver"); err != nil {
				t.Fatal(err)
			}
			var took time.Duration
			for seed := range uint64(3) {
				r := start(t, folder)
				r.patience = 20 * time.Second
				r.run(t, seed, 25*time.Second, broken.faults...)
				problems := r.check(t)
				took += r.now()
				if len(problems) > 0 {
					t.Logf("found after %s: %.2000s", seconds(took), strings.Join(problems, "\n"))
					return
				}
			}
			t.Errorf("not found in %s", seconds(took))
		})
	}
}
