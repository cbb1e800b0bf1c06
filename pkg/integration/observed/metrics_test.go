// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// grew compares two scrapes: what must have grown by how much.
func grew(t *testing.T, before, after scrape, want map[[2]string]float64) {
	t.Helper()
	for metric, by := range want {
		var labels []string
		if metric[1] != "" {
			labels = append(labels, metric[1])
		}
		was, is := before.value(metric[0], labels...), after.value(metric[0], labels...)
		if math.IsNaN(was) || is-was != by {
			t.Errorf("%s{%s} went from %v to %v, want it to grow by %v", metric[0], metric[1], was, is, by)
		}
	}
}

// from0 is a value that is not there yet as a 0.
func from0(value float64) float64 {
	if math.IsNaN(value) {
		return 0
	}
	return value
}

func TestClaimsAreCounted(t *testing.T) {
	s := testutil.Start(t, testutil.WithOptions(func(o *options.Options) { o.SyncWindow = 0 }))
	set := s.Set(t, namespace, "pool", 7)
	s.Stock(t, set, 0, 5)
	client := s.Client.AgentsV1alpha1().SandboxClaims(namespace)
	look := func() scrape { return scrapeOf(t, s.Config, s.Config.Host+"/metrics") }
	create := func(name string, replicas int32, change func(*v1alpha1.SandboxClaim)) error {
		_, err := client.Create(t.Context(), testutil.Claim(set, name, replicas, change), metav1.CreateOptions{})
		return err
	}
	fails := func(claim *v1alpha1.SandboxClaim) { claim.Spec.OnShortage = v1alpha1.ShortageFail }
	waits := func(claim *v1alpha1.SandboxClaim) { claim.Spec.CreateOnNoStock = new(false) }

	// The index knows the stock, or the claims below would be of another outcome.
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := look().value("sandlot_pool_sandboxes", "sandboxset=pool", "state=available"); got != 5 {
			return fmt.Errorf("%v sandboxes are available", got)
		}
		return nil
	})
	before := look()
	if err := create("bound", 2, nil); err != nil {
		t.Fatal(err)
	}
	// A name is refused early by what the watch cache has.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := client.Get(ctx, "bound", metav1.GetOptions{ResourceVersion: "0"})
		return err
	})
	if err := create("bound", 1, nil); err == nil {
		t.Fatal("a name was given twice")
	}
	if err := create("too-many", 5, fails); err == nil {
		t.Fatal("5 of 3 sandboxes were bound")
	}
	if err := create("no-set", 1, func(claim *v1alpha1.SandboxClaim) { fails(claim); claim.Spec.TemplateName = "nowhere" }); err == nil {
		t.Fatal("a sandbox of no set was bound")
	}
	if err := create("waiting", 4, waits); err != nil { // takes the last 3
		t.Fatal(err)
	}
	if err := create("without-set", 1, func(claim *v1alpha1.SandboxClaim) { waits(claim); claim.Spec.TemplateName = "nowhere" }); err != nil {
		t.Fatal(err)
	}
	var waiting scrape
	expect.Eventually(t.Context(), t, func(context.Context) error {
		waiting = look()
		if got := waiting.value("sandlot_claims_without_sandboxset"); got != 1 {
			return fmt.Errorf("%v claims wait for a set", got)
		}
		if got := waiting.value("sandlot_pool_waiting_claims", "sandboxset=pool"); got != 1 {
			return fmt.Errorf("%v claims wait for the pool", got)
		}
		return nil
	})
	if got := waiting.value("sandlot_pool_missing_sandboxes", "sandboxset=pool"); got != 1 {
		t.Errorf("%v sandboxes are missing", got)
	}
	if got := waiting.value("sandlot_unfinished_claims"); got != 2 {
		t.Errorf("%v claims are unfinished", got)
	}
	grew(t, before, waiting, map[[2]string]float64{
		{"sandlot_claim_duration_seconds", "outcome=bound"}:         1,
		{"sandlot_claim_duration_seconds", "outcome=exists"}:        0, // refused before it was a claim to bind
		{"sandlot_claim_duration_seconds", "outcome=set_not_found"}: 1,
		{"sandlot_claim_duration_seconds", "outcome=waiting"}:       2,
		{"sandlot_claim_duration_seconds", "outcome=error"}:         0,
		{"sandlot_sandboxes_bound_total", "source=pool"}:            5,
		{"sandlot_sandboxes_bound_total", "source=fresh"}:           0,
		{"sandlot_transaction_conflicts_total", "moved=claim"}:      0,
		{"sandlot_transaction_duration_seconds", "result=conflict"}: 0,
		{"sandlot_claim_completion_duration_seconds", ""}:           0,
	})
	for labels, want := range map[[2]string]float64{
		{"sandboxset=pool", "outcome=bound"}:           1,
		{"sandboxset=pool", "outcome=waiting"}:         1,
		{"sandboxset=_other", "outcome=waiting"}:       1,
		{"sandboxset=_other", "outcome=set_not_found"}: 1,
		{"sandboxset=nowhere", ""}:                     0,
	} {
		with := slices.DeleteFunc(labels[:], func(label string) bool { return label == "" })
		if got := from0(waiting.value("sandlot_pool_claims_total", with...)) - from0(before.value("sandlot_pool_claims_total", with...)); got != want {
			t.Errorf("%v claims more are of %v, want %v", got, with, want)
		}
	}
	if got := waiting.value("sandlot_pool_claim_duration_seconds", "sandboxset=pool"); !(got >= 1) {
		t.Errorf("the latency of %v claims is that of the pool", got)
	}
	// The client repeats a claim that was refused for shortage, of its own accord.
	refused := waiting.value("sandlot_claim_duration_seconds", "outcome=shortage")
	if refused < 1 || waiting.value("sandlot_pool_reads_total", "result=read") < refused {
		t.Errorf("%v claims were refused after %v reads of the pool", refused, waiting.value("sandlot_pool_reads_total", "result=read"))
	}
	if got, want := waiting.value("sandlot_claim_replicas")-before.value("sandlot_claim_replicas"), 4+refused; got != want {
		t.Errorf("the replicas of %v claims were counted, want %v", got, want)
	}

	// More stock ends the wait; a deleted set takes its figures along.
	s.Stock(t, set, 5, 1)
	var after scrape
	expect.Eventually(t.Context(), t, func(context.Context) error {
		after = look()
		got := after.value("sandlot_claim_completion_duration_seconds", "result=completed") -
			waiting.value("sandlot_claim_completion_duration_seconds", "result=completed")
		if got != 1 {
			return fmt.Errorf("%v claims were completed in the background", got)
		}
		return nil
	})
	if got := after.value("sandlot_pool_index_lag_seconds") - before.value("sandlot_pool_index_lag_seconds"); !(got > 0) {
		t.Errorf("the lag of the index was measured %v times", got)
	}
	if got := after.value("sandlot_feed_lists_total", "resource=sandboxes"); !(got > 0) {
		t.Errorf("sandboxes were listed %v times", got)
	}
	if got := after.value("sandlot_pool_replicas", "sandboxset=pool"); got != 7 {
		t.Errorf("the pool is meant to hold %v", got)
	}
	if err := s.Client.AgentsV1alpha1().SandboxSets(namespace).Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if got := look().value("sandlot_pool_sandboxes"); !math.IsNaN(got) {
			return fmt.Errorf("the deleted set still shows %v sandboxes", got)
		}
		return nil
	})
}

// What an operator expects of any API server is there as well.
func TestStandardMetrics(t *testing.T) {
	s := testutil.Start(t)
	s.Set(t, namespace, "pool", 1)
	got := scrapeOf(t, s.Config, s.Config.Host+"/metrics")
	for _, name := range []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_current_inflight_requests",
		"apiserver_storage_objects", "apiserver_watch_cache_initializations_total", "etcd_request_duration_seconds",
		"go_goroutines", "go_memstats_heap_inuse_bytes", "process_cpu_seconds_total", "process_resident_memory_bytes",
		"workqueue_depth", "workqueue_queue_duration_seconds", "sandlot_build_info",
	} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}
