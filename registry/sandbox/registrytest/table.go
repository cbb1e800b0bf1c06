// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Table is what `kubectl get` should print: the columns by name, those of
// `-o wide` after them, and the cells of all.
type Table struct {
	Columns []string
	Wide    []string
	Rows    [][]any
}

// CheckTable converts a list and compares. Every column must describe itself.
func CheckTable(t *testing.T, convertor rest.TableConvertor, list runtime.Object, want Table) {
	t.Helper()
	table, err := convertor.ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := Table{}
	for _, column := range table.ColumnDefinitions {
		if column.Description == "" {
			t.Errorf("column %s has no description", column.Name)
		}
		if column.Priority > 0 {
			got.Wide = append(got.Wide, column.Name)
		} else {
			got.Columns = append(got.Columns, column.Name)
		}
	}
	for _, row := range table.Rows {
		got.Rows = append(got.Rows, row.Cells)
		if len(row.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%d cells under %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
