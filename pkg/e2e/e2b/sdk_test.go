// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
)

// TestSDK tells the stories, each with a pool of its own.
func TestSDK(t *testing.T) {
	t.Parallel()
	g := startWithOther(t)
	for name, story := range map[string]struct {
		file     string
		replicas int32
		env      []string
	}{
		"lifecycle":  {file: "lifecycle", replicas: 1},
		"timeouts":   {file: "timeouts", replicas: 3},
		"list":       {file: "list", replicas: 6},
		"storm":      {file: "storm", replicas: 40},
		"unserved":   {file: "unserved", replicas: 1},
		"keys":       {file: "keys", replicas: 1, env: []string{"OTHER_KEY=" + g.otherKey}},
		"commands":   {file: "commands", replicas: 1},
		"forms":      {file: "forms", replicas: 1, env: []string{"E2B_DOMAIN=" + g.domain}},
		"e2b 2.50":   {file: "old", replicas: 1, env: []string{"SDK=e2b-2-50"}},
		"e2b 2.8":    {file: "old", replicas: 1, env: []string{"SDK=e2b-2-8"}},
		"e2b 1.13":   {file: "old", replicas: 1, env: []string{"SDK=e2b-1-13"}},
		"e2b 2.51.0": {file: "old", replicas: 1, env: []string{"SDK=e2b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := "pool-" + story.file
			if story.file == "old" {
				pool = story.env[0][len("SDK="):]
			}
			at := e2bsdk.Gateway{API: g.url, Sandboxes: g.url, Team: team, Key: g.newKey(t, story.file)}
			sdks.Tell(t, at, story.file, append(story.env, "POOL="+g.pool(t, pool, story.replicas))...)
		})
	}
}
