// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// FieldRow is a row of a table of docs/security.md: what the right to write some fields of the
// spec of a kind allows.
type FieldRow struct {
	// Fields are the names before a colon, and Part is what stands behind it.
	Fields []string
	Part   string
	// Create and Update are what the verbs allow.
	Create, Update string
}

var (
	tableOfFields = regexp.MustCompile(`(?m)^\*\*([A-Za-z ]+)\*\*, by field of .spec.`)
	code          = regexp.MustCompile("`([^`]+)`")
)

// FieldTables returns the tables of docs/security.md by the kinds that they are of, for tests of
// the folders beside this one.
func FieldTables(t testing.TB) map[string][]FieldRow {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]FieldRow{}
	text := string(content)
	for _, at := range tableOfFields.FindAllStringSubmatchIndex(text, -1) {
		rows := rowsOf(t, text[at[1]:])
		for kind := range strings.SplitSeq(text[at[2]:at[3]], " and ") {
			tables[kind] = rows
		}
	}
	return tables
}

// rowsOf reads the first table of a text.
func rowsOf(t testing.TB, text string) []FieldRow {
	t.Helper()
	_, text, _ = strings.Cut(text, "| --- | --- | --- |\n")
	var rows []FieldRow
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) == 1 {
			break
		}
		if len(cells) != 3 {
			t.Fatalf("a row of %d cells: %s", len(cells), line)
		}
		names, part, _ := strings.Cut(cells[0], ":")
		row := FieldRow{Part: strings.TrimSpace(part), Create: strings.TrimSpace(cells[1]), Update: strings.TrimSpace(cells[2])}
		for _, name := range code.FindAllStringSubmatch(names, -1) {
			row.Fields = append(row.Fields, name[1])
		}
		rows = append(rows, row)
	}
	return rows
}

// FieldsOf returns the names in JSON of the fields of a struct.
func FieldsOf(of reflect.Type) []string {
	var names []string
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && strings.Contains(options, "inline") && field.Type != reflect.TypeFor[runtime.RawExtension]() {
			names = append(names, FieldsOf(field.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}
