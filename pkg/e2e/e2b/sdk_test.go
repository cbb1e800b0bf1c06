// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// TestSDK tells the stories that run no commands, each with a pool of its own.
func TestSDK(t *testing.T) {
	t.Parallel()
	g := startWithOther(t)
	for name, story := range map[string]struct {
		replicas int32
		env      []string
	}{
		"lifecycle": {replicas: 1},
		"timeouts":  {replicas: 3},
		"list":      {replicas: 6},
		"storm":     {replicas: 40},
		"unserved":  {replicas: 1},
		"keys":      {replicas: 1, env: []string{"OTHER_KEY=" + g.otherKey}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.tell(t, name, g.pool(t, "pool-"+name, story.replicas), story.env...)
		})
	}
}

// TestRuntime tells the stories that run commands, write files and open terminals, in sandboxes
// whose agent-runtime is ours: it gets its token in the pool, and runs what it is asked for.
func TestRuntime(t *testing.T) {
	t.Parallel()
	g := startAlone(t, t.TempDir())
	runtimetest.Follow(t, g.Client.AgentsV1alpha1(), team, "", func(ip string) (func(), error) { return program.Runtime(t, programs, ip) })
	for name, story := range map[string]struct {
		file string
		env  []string
	}{
		"runtime":  {file: "runtime"},
		"forms":    {file: "forms", env: []string{"E2B_DOMAIN=" + g.domain}},
		"e2b":      {file: "old", env: []string{"SDK=e2b"}},
		"e2b-2-50": {file: "old", env: []string{"SDK=e2b-2-50"}},
		"e2b-2-8":  {file: "old", env: []string{"SDK=e2b-2-8"}},
		"e2b-1-13": {file: "old", env: []string{"SDK=e2b-1-13"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.tell(t, story.file, g.pool(t, "pool-"+name, 1), append(story.env, "DIR="+t.TempDir())...)
		})
	}
}

// tell tells a story, by a key of its own, with sandboxes of a pool.
func (g *gateway) tell(t *testing.T, story, pool string, env ...string) {
	t.Helper()
	at := e2bsdk.Gateway{API: g.url, Sandboxes: g.url, Team: team, Key: g.newKey(t, story)}
	sdks.Tell(t, at, story, append(env, "POOL="+pool)...)
}
