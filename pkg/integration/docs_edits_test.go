// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var (
	editedSection = regexp.MustCompile(`(?s)\n### Editable fields\n(.*?)\n\n[^|\n]`)
	editedField   = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| ([^|]+) \\|$")
)

// TestDocsSayWhatMayBeEdited: every field of a claim has one row, and all rows have a field.
func TestDocsSayWhatMayBeEdited(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(repository, "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := editedSection.FindStringSubmatch(string(content))
	if section == nil {
		t.Fatal("there is no such section")
	}
	var rows, fields []string
	for _, row := range editedField.FindAllStringSubmatch(section[1]+"\n", -1) {
		rows = append(rows, row[1])
	}
	for field := range reflect.TypeFor[v1alpha1.SandboxClaimSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	slices.Sort(rows)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, rows); diff != "" {
		t.Errorf("fields of the spec, and rows (-want +got):\n%s", diff)
	}
}
