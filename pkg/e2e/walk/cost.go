// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// costFile is the file into which Write writes a cost.
const costFile = "cost.json"

// Cost is what a process spends, by the name of what is counted.
type Cost map[string]uint64

// The names of what is counted. An etcd in the process counts as a part of it.
const (
	allocations  = "allocations"
	allocated    = "allocatedBytes"
	transactions = "etcdTransactions"
	puts         = "etcdPuts"
	putBytes     = "etcdPutBytes"
	ranges       = "etcdRanges"
	encodings    = "encodings"
	decodings    = "decodings"
)

// etcdMetrics are the metrics of an etcd that are counted.
var etcdMetrics = map[string]string{
	"etcd_mvcc_txn_total":                         transactions,
	"etcd_mvcc_put_total":                         puts,
	"etcd_debugging_mvcc_total_put_size_in_bytes": putBytes,
	"etcd_mvcc_range_total":                       ranges,
}

// Measure returns what this process spends while it runs a function.
func Measure(t testing.TB, run func()) Cost {
	t.Helper()
	used := Cost{}
	var before, after runtime.MemStats
	etcdBefore := etcdCost(t)
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	for name, n := range etcdCost(t) {
		used[name] = n - etcdBefore[name]
	}
	used[allocations], used[allocated] = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return used
}

// etcdCost returns what the etcd of this process has done since it started.
func etcdCost(t testing.TB) Cost {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	c := Cost{}
	for _, family := range families {
		if name, ok := etcdMetrics[family.GetName()]; ok {
			metric := family.GetMetric()[0]
			c[name] = uint64(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
		}
	}
	return c
}

// Write writes a cost into a folder.
func (c Cost) Write(t testing.TB, folder string) {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, costFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}
