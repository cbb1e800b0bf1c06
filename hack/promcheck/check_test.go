// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write makes files in a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// loadFor is load, and close at the end of the test.
func loadFor(t *testing.T, folder string, now time.Time) (*checker, error) {
	c, err := load(folder, now)
	if err == nil {
		t.Cleanup(func() {
			if err := c.close(); err != nil {
				t.Error(err)
			}
		})
	}
	return c, err
}

const first = `# TYPE claims_total counter
claims_total{outcome="bound"} 1
claims_total{outcome="error"} 0
# TYPE depth gauge
depth{pool="a"} 3
# TYPE took histogram
took_bucket{le="0.1"} 1
took_bucket{le="+Inf"} 1
took_sum 0.05
took_count 1
`

func TestCheck(t *testing.T) {
	now := time.Now()
	c, err := loadFor(t, write(t, map[string]string{
		"0/server.prom": first,
		"1/server.prom": strings.ReplaceAll(first, "} 1\n", "} 5\n"),
	}), now)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		query query
		want  string // in an error; empty is none
	}{
		"rate":              {query: query{expr: `sum by (outcome) (rate(claims_total[4m]))`, legend: []string{"outcome"}}},
		"quantile":          {query: query{expr: `histogram_quantile(0.99, sum by (le) (rate(took_bucket[4m])))`}},
		"of the target":     {query: query{expr: `sum by (instance) (depth{job="server"})`, legend: []string{"instance"}}},
		"no PromQL":         {query: query{expr: `sum(depth`}, want: "parse error"},
		"unknown metric":    {query: query{expr: `sum(rate(claim_total[4m]))`}, want: "nothing that is exposed matches"},
		"unknown value":     {query: query{expr: `claims_total{outcome="bund"}`}, want: "nothing that is exposed matches"},
		"unknown matcher":   {query: query{expr: `claims_total{result="bound"}`}, want: "nothing that is exposed matches"},
		"unknown grouping":  {query: query{expr: `sum by (result) (claims_total)`}, want: "has no label result"},
		"unknown join":      {query: query{expr: `depth / on (pool) claims_total`}, want: "has no label pool"},
		"unknown legend":    {query: query{expr: `sum(depth)`, legend: []string{"pool"}}, want: "the result has no label pool"},
		"no result":         {query: query{expr: `depth > 5`}, want: "has no result"},
		"silent alert":      {query: query{expr: `depth > 5 and on (pool) depth < 1`, alert: true}},
		"alert on nothing":  {query: query{expr: `dept > 5`, alert: true}, want: "nothing that is exposed matches"},
		"absent":            {query: query{expr: `absent(depth)`, alert: true}},
		"absent of nothing": {query: query{expr: `absent(dept)`, alert: true}, want: "nothing that is exposed matches"},
		"picked":            {query: query{expr: `sum(depth{pool=~".*",job=~".*"})`, pickers: []string{"pool", "job"}}},
		"not to be picked":  {query: query{expr: `sum(claims_total{job=~".*"})`, pickers: []string{"pool", "job"}}},
		"not picked":        {query: query{expr: `sum(depth{job=~".*"})`, pickers: []string{"pool", "job"}}, want: "not filtered by the picker of pool"},
		"wrong type":        {query: query{expr: `depth[5m]`}, want: "neither a vector nor a scalar"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := c.check(tc.query)
			if tc.want == "" && len(errs) > 0 {
				t.Errorf("got %v", errs)
			}
			found := tc.want == ""
			for _, err := range errs {
				found = found || strings.Contains(err.Error(), tc.want)
			}
			if !found {
				t.Errorf("got %v, want an error with %q", errs, tc.want)
			}
		})
	}
}

func TestDashboardQueries(t *testing.T) {
	const variables = `"templating": {"list": [
		{"name": "datasource", "type": "datasource", "query": "prometheus"},
		{"name": "pool", "type": "query", "query": {"query": "label_values(depth{job=\"server\"}, pool)"}}]}`
	folder := write(t, map[string]string{
		"good.json": `{` + variables + `, "panels": [{"type": "row", "title": "r", "panels": [
			{"type": "timeseries", "title": "p", "targets": [{"expr": "rate(x{pool=~\"$pool\"}[$__rate_interval])", "legendFormat": "{{pool}} {{ job }}"}]}]}]}`,
		"unknown.json": `{` + variables + `, "panels": [{"type": "timeseries", "title": "p", "targets": [{"expr": "x{y=~\"$nothing\"}"}]}]}`,
		"empty.json":   `{` + variables + `, "panels": [{"type": "timeseries", "title": "p"}]}`,
	})
	queries, err := dashboardQueries(filepath.Join(folder, "good.json"))
	if err != nil || len(queries) != 2 {
		t.Fatalf("got %v, %v", queries, err)
	}
	if got := queries[0]; got.expr != `depth{job="server"}` || strings.Join(got.legend, " ") != "pool" {
		t.Errorf("the variable became %+v", got)
	}
	if got := queries[1]; got.expr != `rate(x{pool=~".*"}[4m])` || strings.Join(got.legend, " ") != "pool job" {
		t.Errorf("the panel became %+v", got)
	}
	for _, name := range []string{"unknown.json", "empty.json", "absent.json"} {
		if got, err := dashboardQueries(filepath.Join(folder, name)); err == nil {
			t.Errorf("%s is taken: %v", name, got)
		}
	}
}

// TestStoreFills: the alert is about the quota that the members of Sandlot's etcd have, however
// large that is, and not about another etcd.
func TestStoreFills(t *testing.T) {
	queries, err := ruleQueries(filepath.Join("..", "..", "artifacts", "dashboard", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(queries, func(q query) bool { return q.where == "rule SandlotStoreFills" })
	if i < 0 {
		t.Fatal("there is no such alert")
	}
	// page is of an etcd with two members of a size and a quota.
	page := func(a, b, quota float64) (text string) {
		for name, values := range map[string][2]float64{
			"etcd_mvcc_db_total_size_in_bytes": {a, b}, "etcd_server_quota_backend_bytes": {quota, quota}, "sandlot_etcd_member_up": {1, 1},
		} {
			text += fmt.Sprintf("# TYPE %s gauge\n%[1]s{member=\"a\"} %[2]g\n%[1]s{member=\"b\"} %[3]g\n", name, values[0], values[1])
		}
		return text
	}
	const MiB = 1 << 20
	now := time.Now()
	for name, tc := range map[string]struct {
		page  string
		fires bool
	}{
		"a small one":                      {page(30*MiB, 35*MiB, 48*MiB), false},
		"one member of a small one":        {page(30*MiB, 40*MiB, 48*MiB), true},
		"the same size of a larger quota":  {page(30*MiB, 40*MiB, 1536*MiB), false},
		"a large one":                      {page(1200*MiB, 1100*MiB, 1536*MiB), true},
		"one without a quota":              {page(1200*MiB, 1100*MiB, 0), false},
		"an etcd that is not of Sandlot's": {strings.ReplaceAll(page(40*MiB, 40*MiB, 48*MiB), "sandlot_", "other_"), false},
	} {
		c, err := loadFor(t, write(t, map[string]string{"0/etcd.prom": tc.page, "1/etcd.prom": tc.page}), now)
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.evaluate(queries[i].expr)
		if err != nil || (len(found) > 0) != tc.fires {
			t.Errorf("%s: the alert has %v, %v", name, found, err)
		}
	}
}
