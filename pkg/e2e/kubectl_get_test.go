// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func testVersion(t *testing.T, k *kubectl) {
	// A kubectl of another minor version warns of the skew on stderr.
	stdout, stderr, code := k.run(t, "", "version")
	if code != 0 || !strings.Contains(stdout, "Server Version: v1.") || !strings.Contains(stdout, "+sandlot.") {
		t.Errorf("version ended with %d:\n%s%s", code, stdout, stderr)
	}
}

func testAPIResources(t *testing.T, k *kubectl) {
	var got [][]string
	for line := range strings.Lines(k.do(t, "api-resources", "--no-headers", "-o", "wide")) {
		got = append(got, strings.Fields(line))
	}
	const verbs = "create,delete,deletecollection,get,list,patch,update,watch"
	const gv, agents, extensions = "agents.kruise.io/v1alpha1", "agents.x-k8s.io/v1beta1", "extensions.agents.x-k8s.io/v1beta1"
	want := [][]string{
		{"sandboxclaims", "sbc,sandboxclaim", gv, "true", "SandboxClaim", verbs, "sandlot"},
		{"sandboxes", "sbx,sandbox", gv, "true", "Sandbox", verbs, "sandlot"},
		{"sandboxsets", "sbs", gv, "true", "SandboxSet", verbs, "sandlot"},
		{"sandboxtemplates", "sbt,sandboxtemplate", gv, "true", "SandboxTemplate", verbs, "sandlot"},
		// No category has an object twice.
		{"sandboxes", "sandbox", agents, "true", "Sandbox", verbs},
		{"sandboxclaims", "sandboxclaim", extensions, "true", "SandboxClaim", verbs},
		{"sandboxtemplates", "sandboxtemplate", extensions, "true", "SandboxTemplate", verbs},
		{"sandboxwarmpools", "swp", extensions, "true", "SandboxWarmPool", verbs},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	served := []string{gv, "agents.x-k8s.io/v1alpha1", agents, "extensions.agents.x-k8s.io/v1alpha1", extensions, ""}
	if out := k.do(t, "api-versions"); out != strings.Join(served, "\n") {
		t.Errorf("api-versions: %q", out)
	}
}

func testColumns(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	k.claim(t, builders.ClaimYAML, "create", "-f", "-")
	k.feed(t, templateYAML+"---"+sandboxYAML, "create", "-f", "-")
	k.do(t, "wait", "--for=condition=Ready", "--timeout", expect.Patience.String(), "sbx", "alone")

	kinds := map[string]struct {
		names        []string // that kubectl knows the kind by
		object       string
		columns      []string
		wide         []string // more columns
		row, wideRow string
	}{
		"claims": {
			names: []string{"sandboxclaims", "sandboxclaim.agents.kruise.io", "sbc"}, object: "claim",
			columns: []string{"NAME", "PHASE", "TEMPLATE", "DESIRED", "CLAIMED", "AGE", "STATUS", "SANDBOX", "IP"},
			wide:    []string{"CLAIMEDBY", "AHEAD", "MESSAGE"},
			row:     "claim Completed pool 1 1", wideRow: "Successfully claimed 1/1 sandboxes",
		},
		"sets": {
			names: []string{"sandboxsets", "sandboxset", "sbs"}, object: "pool",
			columns: []string{"NAME", "REPLICAS", "AVAILABLE", "UPDATEDREPLICAS", "UPDATEDAVAILABLEREPLICAS", "UPDATEREVISION", "AGE"},
			wide:    []string{"CURRENT", "TEMPLATE", "MESSAGE"},
			row:     "pool 1",
		},
		"templates": {
			names: []string{"sandboxtemplates", "sandboxtemplate.agents.kruise.io", "sbt"}, object: "template",
			columns: []string{"NAME", "SET", "REVISION", "IMAGE", "AGE"},
			row:     "template <none> <none> busybox:1",
		},
		"sandboxes": {
			names: []string{"sandboxes", "sbx", "sandboxes.agents.kruise.io", "sandbox.v1alpha1.agents.kruise.io"}, object: "alone",
			columns: []string{"NAME", "STATUS", "AGE", "CLAIMED", "SHUTDOWN_TIME", "PAUSE_TIME", "RECYCLEDCOUNT", "MESSAGE"},
			wide:    []string{"IP", "NODE", "POOL", "CLAIM", "CLAIMEDBY"},
			row:     "alone Running", wideRow: "simulated",
		},
	}
	for name, kind := range kinds {
		for _, resource := range kind.names {
			table := k.do(t, "get", resource, kind.object)
			if diff := cmp.Diff(kind.columns, header(table)); diff != "" {
				t.Errorf("get %s (-want +got):\n%s", resource, diff)
			}
			if cells := strings.Join(strings.Fields(table), " "); !strings.Contains(cells, kind.row) {
				t.Errorf("get %s has no row %q:\n%s", resource, kind.row, table)
			}
		}
		table := k.do(t, "get", kind.names[0], kind.object, "-o", "wide")
		if diff := cmp.Diff(slices.Concat(kind.columns, kind.wide), header(table)); diff != "" {
			t.Errorf("get %s -o wide (-want +got):\n%s", name, diff)
		}
		if !strings.Contains(table, kind.wideRow) {
			t.Errorf("get %s -o wide has no %q:\n%s", name, kind.wideRow, table)
		}
		if out := k.do(t, "describe", kind.names[0], kind.object); !strings.Contains(out, "API Version:  agents.kruise.io/v1alpha1") {
			t.Errorf("describe %s:\n%s", name, out)
		}
	}
}

// The category means all four kinds, and the singular of a kind that kind alone.
func testCategory(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 1)
	k.feed(t, builders.ClaimYAML+"---"+templateYAML+"---"+sandboxYAML, "create", "-f", "-")
	out := k.do(t, "get", "sandlot", "-o", "name")
	for _, want := range []string{
		"sandboxclaim.agents.kruise.io/claim\n", "sandboxset.agents.kruise.io/pool\n",
		"sandboxtemplate.agents.kruise.io/template\n", "sandbox.agents.kruise.io/alone\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	k.do(t, "get", "sandbox/alone")
	k.do(t, "get", "sandbox", "alone")
	if out := k.do(t, "get", "sandbox", "-o", "name"); strings.Contains(out, "sandboxclaim") || !strings.Contains(out, "sandbox.agents.x-k8s.io/alone\n") {
		t.Errorf("get sandbox:\n%s", out)
	}
	k.do(t, "get", "sandbox.agents.kruise.io/alone", "-o", "jsonpath={.status.phase}")
	k.do(t, "delete", "sandbox", "--all", "--wait=false")
	for _, kept := range []string{"sbc/claim", "sbs/pool", "sbt/template"} {
		if since := k.do(t, "get", kept, "-o", "jsonpath={.metadata.deletionTimestamp}"); since != "" {
			t.Errorf("%s is being deleted", kept)
		}
	}
}

func testExplain(t *testing.T, k *kubectl) {
	for field, want := range map[string]string{
		"sbc":                               "The request that creates it binds them",
		"sbc.spec.onShortage":               "Default Wait",
		"sbc.spec.allocation":               "AllOrNothing",
		"sbc.spec.createOnNoStock":          "<boolean>",
		"sbc.status.sandboxes.podIPs":       "addresses",
		"sandboxclaims.status.conditions":   "TimedOut",
		"sbs.spec.scaleStrategy":            "maxUnavailable",
		"sandboxset.spec.template":          "pod template",
		"sbt.spec.networkPolicy":            "<SandboxNetworkPolicy>",
		"sbx.status.podInfo.podIP":          "<string>",
		"sandboxes.spec.upgradePolicy.type": "CheckpointRestore",
		// What is not served, or has no effect, is said where the field is.
		"sandboxes.spec.upgradePolicy":      "not served",
		"sandboxes.spec.lifecycle":          "not served",
		"sbs.spec.pauseStrategy.type":       "Hibernate is not",
		"sbs.spec.persistentContents":       "no effect",
		"sbt.spec.persistentContents":       "no effect",
		"sandboxes.spec.persistentContents": "no effect",
		"sbc.spec.runtimes":                 "no effect",
	} {
		out := k.do(t, "explain", field)
		words := strings.Join(strings.Fields(out), " ") // kubectl breaks lines where it likes
		if !strings.Contains(words, want) || strings.Contains(out, "<empty>") {
			t.Errorf("explain %s does not say %q:\n%s", field, want, out)
		}
	}
	for _, kind := range []string{"sbc", "sbs", "sbt", "sbx"} {
		if out := k.do(t, "explain", kind, "--recursive"); !strings.Contains(out, "  spec\t") {
			t.Errorf("explain %s --recursive:\n%s", kind, out)
		}
	}
	k.fail(t, "", []string{"explain", "sbc.spec.nonsense"}, `field "nonsense" does not exist`)
}

// What kubectl explain prints comes from OpenAPI: v3, or v2 for old clients.
func testEveryFieldIsDescribed(t *testing.T, k *kubectl) {
	documents := map[string]struct{ path, prefix string }{
		"v2": {"/openapi/v2", "#/definitions/"},
		"v3": {"/openapi/v3/apis/agents.kruise.io/v1alpha1", "#/components/schemas/"},
	}
	for name, document := range documents {
		var doc struct {
			Definitions map[string]*schema
			Components  struct{ Schemas map[string]*schema }
		}
		if err := json.Unmarshal([]byte(k.do(t, "get", "--raw", document.path)), &doc); err != nil {
			t.Fatal(err)
		}
		all := doc.Definitions
		if name == "v3" {
			all = doc.Components.Schemas
		}
		for _, kind := range []string{"SandboxClaim", "SandboxSet", "SandboxTemplate", "Sandbox"} {
			root := all["io.kruise.agents.v1alpha1."+kind]
			if root == nil {
				t.Fatalf("%s has no %s", name, kind)
			}
			walk := walker{t: t, schemas: all, prefix: document.prefix}
			if walk.visit(name+" "+kind, root); walk.fields < 10 {
				t.Errorf("%s %s has %d fields only", name, kind, walk.fields)
			}
		}
	}
}

// schema is what a field's description may hang on.
type schema struct {
	Ref         string `json:"$ref"`
	Description string
	Properties  map[string]*schema
	Items       *schema
	AllOf       []*schema
	// AdditionalProperties is a schema, or true.
	AdditionalProperties json.RawMessage
}

// walker visits every field below a schema and complains of those without a
// description.
type walker struct {
	t       *testing.T
	schemas map[string]*schema
	prefix  string
	above   []string // names of the schemas that the visit is in
	fields  int
}

func (w *walker) visit(path string, s *schema) {
	for _, part := range append([]*schema{s, s.Items}, s.AllOf...) {
		if part == nil {
			continue
		}
		if part != s {
			w.visit(path, part)
		}
		name, isRef := strings.CutPrefix(part.Ref, w.prefix)
		if !isRef || slices.Contains(w.above, name) {
			continue
		}
		target := w.schemas[name]
		if target == nil {
			w.t.Errorf("%s refers to %s, which is not there", path, name)
			continue
		}
		w.above = append(w.above, name)
		w.visit(path, target)
		w.above = w.above[:len(w.above)-1]
	}
	for name, field := range s.Properties {
		w.fields++
		if strings.TrimSpace(field.Description) == "" {
			w.t.Errorf("%s.%s has no description", path, name)
		}
		w.visit(path+"."+name, field)
	}
	var values schema
	if json.Unmarshal(s.AdditionalProperties, &values) == nil {
		w.visit(path+"[*]", &values)
	}
}

func testSelectors(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	k.feed(t, builders.ClaimYAML, "create", "-f", "-")
	waiting := strings.Replace(builders.ClaimYAML, "name: claim", "name: waiting\n  labels: {team: blue}", 1)
	k.feed(t, strings.Replace(waiting, "templateName: pool", "templateName: absent", 1), "create", "-f", "-")
	k.feed(t, sandboxYAML, "create", "-f", "-")
	k.do(t, "wait", "--for=condition=Ready", "--timeout", expect.Patience.String(), "sbx", "--all")

	for selector, want := range map[string]string{
		"sbc --field-selector=metadata.name=claim":                       "claim",
		"sbc --field-selector=metadata.name!=claim":                      "waiting",
		"sbc --field-selector=status.phase=Completed":                    "claim",
		"sbc --field-selector=status.phase=Claiming":                     "waiting",
		"sbc --field-selector=status.phase=Claiming,metadata.name=claim": "",
		"sbc --selector=team=blue":                                       "waiting",
		"sbc --selector=!team":                                           "claim",
		"sbs --field-selector=metadata.name=pool":                        "pool",
		"sbx --field-selector=status.phase=Running,metadata.name=alone":  "alone",
		"sbx --field-selector=status.phase=Failed":                       "",
	} {
		args := append([]string{"get", "-o", "jsonpath={.items[*].metadata.name}"}, strings.Fields(selector)...)
		if got := k.do(t, args...); got != want {
			t.Errorf("get %s: %q, want %q", selector, got, want)
		}
	}
	k.fail(t, "", []string{"get", "sbc", "--field-selector=spec.replicas=1"}, "spec.replicas", "status.phase")
	k.fail(t, "", []string{"get", "sbt", "--field-selector=status.phase=x"}, "status.phase")
}

func testPages(t *testing.T, k *kubectl) {
	var manifest strings.Builder
	for i := range 5 {
		manifest.WriteString("---" + strings.Replace(templateYAML, "name: template", fmt.Sprintf("name: t%d", i), 1))
	}
	k.feed(t, manifest.String(), "create", "-f", "-")
	for _, size := range []string{"1", "2", "5", "500"} {
		out := k.do(t, "get", "sbt", "--chunk-size="+size, "-o", "name")
		if n := strings.Count(out, "\n"); n != 5 {
			t.Errorf("in pages of %s there are %d:\n%s", size, n, out)
		}
	}
	page := k.do(t, "get", "--raw", "/apis/agents.kruise.io/v1alpha1/namespaces/"+k.namespace+"/sandboxtemplates?limit=2")
	if !strings.Contains(page, `"continue":"`) || !strings.Contains(page, `"remainingItemCount":3`) {
		t.Errorf("a page does not say how to continue:\n%s", page)
	}
}

func testWatch(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	k.claim(t, builders.ClaimYAML, "create", "-f", "-")

	cmd := k.command(t.Context(), "get", "sbc", "--watch", "--output-watch-events", "-o", "json")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	events := json.NewDecoder(bufio.NewReader(stdout))
	expect := func(kind, name string) {
		t.Helper()
		var event claimEvent
		if err := events.Decode(&event); err != nil {
			t.Fatalf("watching: %v", err)
		}
		if event.Type != kind || event.Object.Name != name {
			t.Errorf("%s of %s, want %s of %s", event.Type, event.Object.Name, kind, name)
		}
		expect.Claimed(t, &event.Object, 1)
	}
	expect("ADDED", "claim")
	k.claim(t, strings.Replace(builders.ClaimYAML, "name: claim", "name: second", 1), "create", "-f", "-")
	expect("ADDED", "second") // and never before it was Completed
	k.do(t, "label", "sbc/claim", "a=b")
	expect("MODIFIED", "claim")
	k.do(t, "delete", "sbc/second")
	expect("DELETED", "second")
}

type claimEvent struct {
	Type   string
	Object v1alpha1.SandboxClaim
}
