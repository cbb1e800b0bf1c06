// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// team is the namespace of the key that "sandlot up" makes, and otherTeam another one.
const team, otherTeam = "default", "other"

// gateway is a running "sandlot up" that serves the E2B API.
type gateway struct {
	*program.Server
	// url is where the API is served.
	url string
	// domain is that of hosts of sandboxes.
	domain string
	// key is that of team, and otherKey that of otherTeam.
	key, otherKey string
}

var printed = regexp.MustCompile(`\b(E2B_API_URL|E2B_API_KEY|E2B_DOMAIN)=(\S+)`)

// start starts one, with doubles of envd in its sandboxes, which only take their tokens.
func start(t *testing.T) *gateway {
	t.Helper()
	return startIn(t, t.TempDir())
}

// startWithOther starts one that knows a key of another team. A run before it makes the
// data in which that is put, for which "sandlot up" has no command.
func startWithOther(t *testing.T) *gateway {
	t.Helper()
	dir := t.TempDir()
	up(t, dir).Stop(t)
	otherKey := issue(t, dir, otherTeam)
	g := startIn(t, dir)
	g.otherKey = otherKey
	return g
}

func startIn(t *testing.T, dir string) *gateway {
	t.Helper()
	g := startAlone(t, dir)
	runtimetest.Start(t).Follow(t, g.Client.AgentsV1alpha1(), team, "")
	return g
}

// startAlone starts one without runtimes in its sandboxes.
func startAlone(t *testing.T, dir string) *gateway {
	t.Helper()
	g := &gateway{Server: up(t, dir)}
	for _, variable := range printed.FindAllStringSubmatch(g.Stdout.String(), -1) {
		switch variable[1] {
		case "E2B_API_URL":
			g.url = variable[2]
		case "E2B_API_KEY":
			g.key = variable[2]
		case "E2B_DOMAIN":
			g.domain = variable[2]
		}
	}
	port, local := strings.CutPrefix(g.url, "http://127.0.0.1:")
	if !local || g.domain != "localhost:"+port || !strings.HasPrefix(g.key, "e2b_") {
		t.Fatalf("sandlot up did not tell where the E2B API is:\n%s", g.Stdout.String())
	}
	return g
}

func up(t *testing.T, dir string) *program.Server {
	t.Helper()
	return program.Up(t, programs, dir, "--e2b-address", "127.0.0.1:0")
}

// issue makes a key of a team in the data of a server that is stopped.
func issue(t *testing.T, dir, team string) string {
	t.Helper()
	var folder string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(entry.Name(), "e2b-keys") && filepath.Ext(path) == ".json" {
			folder = filepath.Dir(path)
		}
		return err
	})
	if err != nil || folder == "" {
		t.Fatalf("there is no file of API keys in %s: %v", dir, err)
	}
	file, err := apikeys.OpenFile(folder, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := apikeys.New(file).Issue(t.Context(), apikeys.Request{Team: team, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pool makes a full pool of sandboxes with envd, and returns its name.
func (g *gateway) pool(t *testing.T, name string, replicas int32) string {
	t.Helper()
	g.makePool(t, name, replicas)
	expect.FullPool(t, g.Client.AgentsV1alpha1(), team, name, replicas)
	return name
}

// makePool makes a pool of sandboxes that declare envd.
func (g *gateway) makePool(t *testing.T, name string, replicas int32) {
	t.Helper()
	set := builders.Set(name, replicas)
	set.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"containers":[{"name":"main","image":"busybox:1","resources":{"requests":{"cpu":"250m","memory":"100Mi"}}}]}}`)}
	if _, err := g.Client.AgentsV1alpha1().SandboxSets(team).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
