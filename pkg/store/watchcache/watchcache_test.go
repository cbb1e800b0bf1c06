// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func init() {
	consistency.CheckPeriod = 20 * time.Millisecond
	debug.SetMemoryLimit(512 << 20) // pages of 64 objects
	metrics.Register()
}

// TestChecksInSmallPages: the caches of all kinds are found to agree with etcd, of which no check reads more than 64
// objects at a time.
func TestChecksInSmallPages(t *testing.T) {
	const objects, pages = 130, 3
	agents := testutil.Start(t).Client.AgentsV1alpha1()
	for i := range objects {
		name := fmt.Sprintf("o-%d", i)
		_, err := agents.SandboxSets("ns").Create(t.Context(), builders.Set(name, 0), metav1.CreateOptions{})
		if err == nil {
			_, err = agents.SandboxTemplates("ns").Create(t.Context(), builders.Template(name), metav1.CreateOptions{})
		}
		if err == nil {
			_, err = agents.Sandboxes("ns").Create(t.Context(), builders.Sandbox(name), metav1.CreateOptions{})
		}
		if err == nil {
			_, err = agents.SandboxClaims("ns").Create(t.Context(), builders.Claim(name, 1), metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, resource := range []string{"sandboxsets", "sandboxtemplates", "sandboxes", "sandboxclaims"} {
		t.Run(resource, func(t *testing.T) {
			lists := total(t, "etcd_requests_total", resource, "operation", "list")
			checks := total(t, "apiserver_storage_consistency_checks_total", resource, "status", "success")
			expect.Eventually(t.Context(), t, func(context.Context) error {
				// In this order: what is checked has been read.
				checked := total(t, "apiserver_storage_consistency_checks_total", resource, "status", "success") - checks
				read := total(t, "etcd_requests_total", resource, "operation", "list") - lists
				if checked < 5 {
					return fmt.Errorf("%v checks", checked)
				}
				if read < pages*(checked-1) { // the first one may have read some before
					t.Fatalf("%v checks read %v pages", checked, read)
				}
				return nil
			})
		})
	}
}

// TestListsOfUsers: lists that are read from etcd have as many objects as their users ask for.
func TestListsOfUsers(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, false)
	const objects = 70
	sets := testutil.Start(t).Client.AgentsV1alpha1().SandboxSets("ns")
	var last *v1alpha1.SandboxSet
	for i := range objects {
		var err error
		if last, err = sets.Create(t.Context(), builders.Set(fmt.Sprintf("o-%d", i), 0), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := sets.List(t.Context(), metav1.ListOptions{
		Limit: 10000, ResourceVersion: last.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil || len(list.Items) != objects || list.Continue != "" {
		t.Errorf("%d of %d objects in the first page: %v", len(list.Items), objects, err)
	}
}

// total returns the sum of the counters of a resource of which the value of a label begins with a prefix.
func total(t *testing.T, name, resource, label, prefix string) (sum float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["resource"] == resource && strings.HasPrefix(labels[label], prefix) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}
