// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// notHere are metrics that the programs of this test do not have.
var notHere = []string{
	"sandlot_certificate_expiration_timestamp_seconds", "sandlot_pod_dry_runs",
	"sandlot_encryption_key_created_timestamp_seconds", "sandlot_encryption_keys_lost", "sandlot_encryption_rewrite_pending",
	"sandlot_encryption_rewrites_total", "sandlot_encryption_unreadable_values",
	"sandlot_backup_last_success_timestamp_seconds",
}

// The page about metrics has all of them and no others.
func TestMetricsAreDocumented(t *testing.T) {
	s := testutil.Start(t)
	controllers := startManager(t, s)
	s.Set(t, namespace, "documented", 1)
	var exposed []string
	expect.Eventually(t.Context(), t, func(context.Context) error {
		server, manager := scrapeOf(t, s.Config, s.Config.Host+"/metrics"), scrapeOf(t, &rest.Config{}, controllers)
		if server["sandlot_pool_replicas"] == nil || manager["sandlot_sandboxset_replicas"] == nil {
			return errors.New("the set is not shown yet")
		}
		if manager["agent_sandboxes"] == nil {
			return errors.New("no sandbox is counted yet")
		}
		for _, prefix := range []string{"sandlot_", "agent_sandbox"} {
			exposed = append(append(exposed, server.names(prefix)...), manager.names(prefix)...)
		}
		return nil
	})
	// These are there only while a set is short, or has a burst.
	exposed = append(exposed, "sandlot_sandboxset_short_since_timestamp_seconds", "sandlot_sandboxset_burst")
	exposed = append(exposed, scrapeOf(t, s.Config, s.Config.Host+apiserver.EtcdMetricsPath).names("sandlot_")...)
	exposed = append(exposed, notHere...)
	slices.Sort(exposed)

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, name := range regexp.MustCompile("`(sandlot|agent)_[a-z_]+").FindAllString(string(page), -1) {
		if name = strings.TrimPrefix(name, "`"); !strings.HasSuffix(name, "_") {
			documented = append(documented, name)
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Compact(exposed), slices.Compact(documented)); diff != "" {
		t.Errorf("metrics (-exposed +documented):\n%s", diff)
	}
}
