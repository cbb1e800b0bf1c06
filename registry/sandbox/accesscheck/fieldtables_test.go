// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package accesscheck_test

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// notStored are kinds that are asked for and never stored. Their rights are subresources.
var notStored = sets.New("SandboxClaimRelease", "SandboxClaimRuntimeAccess")

// Each field of the spec of each kind, in each group and version, has a row in
// docs/security.md that says what the verbs on it allow, and each row has such a field.
func TestEveryFieldIsInTheTables(t *testing.T) {
	scheme, tables := registrytest.NewScheme(), registrytest.FieldTables(t)
	served := map[string]sets.Set[string]{}
	for _, group := range []string{v1alpha1.GroupName, v1alpha1.AgentsGroup, v1alpha1.ExtensionsGroup} {
		versions := scheme.PrioritizedVersionsForGroup(group)
		if len(versions) == 0 {
			t.Errorf("the group %s has no versions", group)
		}
		for _, version := range versions {
			for kind, is := range scheme.KnownTypes(version) {
				spec, ok := is.FieldByName("Spec")
				if !ok || notStored.Has(kind) {
					continue
				}
				if served[kind] == nil {
					served[kind] = sets.New[string]()
				}
				for _, name := range registrytest.FieldsOf(spec.Type) {
					served[kind].Insert(name)
					rows := slices.DeleteFunc(slices.Clone(tables[kind]), func(r registrytest.FieldRow) bool { return !slices.Contains(r.Fields, name) })
					for _, row := range rows {
						if row.Create == "" || row.Update == "" {
							t.Errorf("%s: the row of %s does not say what each verb allows: %+v", kind, name, row)
						}
					}
					if len(rows) == 0 || len(rows) > 1 && slices.ContainsFunc(rows, func(r registrytest.FieldRow) bool { return r.Part == "" }) {
						t.Errorf("%s in %s: spec.%s has %d rows in docs/security.md", kind, version, name, len(rows))
					}
				}
			}
		}
	}
	for kind, rows := range tables {
		if served[kind] == nil {
			t.Errorf("docs/security.md has a table of %s, which is not served", kind)
		}
		for _, row := range rows {
			for _, name := range row.Fields {
				if !served[kind].Has(name) && !served[pooled[kind]].Has(name) {
					t.Errorf("docs/security.md has a row of spec.%s, which no %s has", name, kind)
				}
			}
		}
	}
	if len(served) != 5 {
		t.Errorf("kinds with a spec: %v", reflect.ValueOf(served).MapKeys())
	}
}

// pooled are the two names of one kind, which have one table.
var pooled = map[string]string{"SandboxSet": "SandboxWarmPool", "SandboxWarmPool": "SandboxSet"}
