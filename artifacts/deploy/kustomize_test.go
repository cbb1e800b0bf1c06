// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
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

// TestKustomizeIsTheSame: each overlay with each component, here and in another namespace, has
// the objects of the chart with the values that are the same choice.
func TestKustomizeIsTheSame(t *testing.T) {
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
					if ns != namespace {
						install = "namespace: " + ns + "\n" + install
					}
					kustomized := renderUser(t, map[string]string{
						"install": install,
						"top":     "resources: [../install]\ncomponents: [" + below(choice.over) + "]\n",
					})
					want := byName(t, renderChart(t, ns, valuesOf[overlay], choice.values, "static: true\n"))
					if diff := cmp.Diff(any(want), withoutHash(byName(t, kustomized))); diff != "" || len(want) < 20 {
						t.Errorf("of %d objects: -chart +kustomize\n%s", len(want), diff)
					}
				})
			}
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

// hashed is how kustomize calls the ConfigMap of an external etcd.
var hashed = regexp.MustCompile(`\b(sandlot-etcd)-[0-9a-z]{10}$`)

func withoutHash(value any) any {
	switch value := value.(type) {
	case string:
		return hashed.ReplaceAllString(value, "$1")
	case map[string]any:
		all := map[string]any{}
		for key, below := range value {
			all[hashed.ReplaceAllString(key, "$1")] = withoutHash(below)
		}
		return all
	case []any:
		all := make([]any, 0, len(value))
		for _, below := range value {
			all = append(all, withoutHash(below))
		}
		return all
	}
	return value
}
