// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// valuesOf are the values of the chart that are the same choice as an overlay.
var valuesOf = map[string]string{
	"default": "",
	"single":  "etcd: {mode: embedded}\n",
	"small":   "etcd: {mode: embedded}\nprofile: small\n",
	"external-etcd": `etcd:
  mode: external
  external:
    endpoints: [https://etcd-0.example.com:2379, https://etcd-1.example.com:2379, https://etcd-2.example.com:2379]
    prefix: /sandlot
`,
}

// choicesOf are components, the values that are the same choice, and those of the components
// that have a namespace of their own.
var choicesOf = map[string]struct {
	components, over []string
	values           string
	// only are the overlays that it is for. Empty is all of them.
	only []string
}{
	"nothing else": {},
	agentSandbox:   {components: []string{agentSandbox}, values: "agentSandbox: {enabled: true}\n"},
	e2b:            {components: []string{"e2b-gateway"}, over: []string{"e2b-keys"}, values: "gateway: {enabled: true}\n"},
	"dry-runs":     {components: []string{"dry-runs"}, values: "dryRuns: {enabled: true}\n"},
	"restricted":   {components: []string{"restricted"}, values: "restricted: {enabled: true}\n"},
	"backup-s3":    {components: []string{"backup-s3"}, values: "backup: {target: s3}\n", only: []string{"default", "single"}},
	"stopped":      {components: []string{"stopped"}, values: "stopped: true\n"},
	"everything": {
		components: []string{agentSandbox, "e2b-gateway", "dry-runs", "restricted"}, over: []string{"e2b-keys"},
		values: "agentSandbox: {enabled: true}\ngateway: {enabled: true}\nrestricted: {enabled: true}\ndryRuns: {enabled: true}\n",
	},
}

// TestChartIsTheSame: the chart has the objects of each overlay with each component, here and
// in another namespace.
func TestChartIsTheSame(t *testing.T) {
	for _, overlay := range overlays {
		for name, choice := range choicesOf {
			for _, ns := range []string{namespace, elsewhere} {
				if ns == elsewhere && name != "everything" || choice.only != nil && !slices.Contains(choice.only, overlay) {
					continue
				}
				t.Run(strings.Join([]string{overlay, name, ns}, "/"), func(t *testing.T) {
					t.Parallel()
					if overlay != "default" && len(choice.components) == 1 && name != "stopped" {
						expect.LongOnly(t) // each component once, and all of them with each overlay
					}
					install := "resources: [%s/" + overlay + "]\ncomponents: [" + below(choice.components) + "]\n"
					checkSame(t, ns, install, choice.over, valuesOf[overlay], choice.values)
				})
			}
		}
	}
}

// TestChartWithoutBackups is what a kustomization has that is made of the bases.
func TestChartWithoutBackups(t *testing.T) {
	for mode, component := range map[string]string{"cluster": "etcd", "embedded": "embedded-etcd"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var bases []string
			for _, base := range []string{"access", "api", "apiserver", "controller-manager", "namespace"} {
				bases = append(bases, "%s/bases/"+base)
			}
			install := "resources: [" + strings.Join(bases, ", ") + "]\ncomponents: [" + below([]string{component, "images"}) + "]\n"
			checkSame(t, namespace, install, nil, "backup: {enabled: false}\netcd: {mode: "+mode+"}\n")
		})
	}
}

// checkSame: the chart has all objects of a kustomization in a namespace, with components over
// that, and no others, and each is the same but for what contentOf leaves out.
func checkSame(t *testing.T, ns, install string, over []string, values ...string) {
	t.Helper()
	if ns != namespace {
		install = "namespace: " + ns + "\n" + install
	}
	want := contentOf(t, renderUser(t, map[string]string{
		"install": install,
		"top":     "resources: [../install]\ncomponents: [" + below(over) + "]\n",
	}))
	got := contentOf(t, renderChart(t, ns, values...))
	if len(want) < 20 {
		t.Fatalf("the kustomization has %d objects", len(want))
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[id]; !ok {
			t.Errorf("the chart has no %s", id)
		} else if diff := cmp.Diff(want[id], got[id]); diff != "" {
			t.Errorf("%s differs: -kustomize +chart\n%s", id, diff)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[id]; !ok {
			t.Errorf("only the chart has %s", id)
		}
	}
}

// below are the paths of components, as renderUser has them.
func below(components []string) string {
	var paths []string
	for _, component := range components {
		paths = append(paths, "%s/components/"+component)
	}
	return strings.Join(paths, ", ")
}

// contentOf returns objects by name, without what may differ:
//   - the Namespace of the release, which "helm install --create-namespace" makes
//   - labels that Helm asks for
//   - that Helm keeps API keys and backups when it uninstalls
//   - what the name of the ConfigMap of an external etcd ends with, a hash of its content
func contentOf(t *testing.T, objects manifests) map[string]any {
	t.Helper()
	found := byName(t, objects)
	delete(found, "Namespace  "+namespace)
	all := map[string]any{}
	for id, object := range found {
		object := object.(map[string]any)
		metadata := object["metadata"].(map[string]any)
		drop(metadata, "labels", "helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version")
		drop(metadata, "annotations", "helm.sh/resource-policy")
		all[withoutHash(id).(string)] = withoutHash(object)
	}
	return all
}

// drop removes keys from a map of strings, and the map where nothing is left.
func drop(metadata map[string]any, field string, keys ...string) {
	values, _ := metadata[field].(map[string]any)
	for _, key := range keys {
		delete(values, key)
	}
	if len(values) == 0 {
		delete(metadata, field)
	}
}

// hashed is how the ConfigMap of an external etcd is called.
var hashed = regexp.MustCompile(`\bsandlot-etcd-[0-9a-z]{10}$`)

func withoutHash(value any) any {
	switch value := value.(type) {
	case string:
		return hashed.ReplaceAllString(value, "sandlot-etcd-HASH")
	case map[string]any:
		for key, below := range value {
			value[key] = withoutHash(below)
		}
	case []any:
		for i, below := range value {
			value[i] = withoutHash(below)
		}
	}
	return value
}
