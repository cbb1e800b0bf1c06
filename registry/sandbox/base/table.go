// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
)

// None fills a cell that has nothing to say. An empty string in the middle of
// a line would make the next column look like this one.
const None = "<none>"

// wide is the priority from which kubectl shows a column only with `-o wide`.
const wide = 1

// Object is what a row is made of.
type Object interface {
	runtime.Object
	metav1.Object
}

// Column is one column of the table of kind T: its header and its cell side by
// side, so that the two cannot come to differ in order or in number.
type Column[T Object] struct {
	metav1.TableColumnDefinition
	// Cell gives the value of the column for one object: a string, an int64,
	// or nil for no value. now is the same for all rows of one table.
	Cell func(obj T, now time.Time) any
}

// StringColumn is a column of text.
func StringColumn[T Object](name, description string, cell func(T) string) Column[T] {
	return Column[T]{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "string", Description: description},
		Cell:                  func(obj T, _ time.Time) any { return cell(obj) },
	}
}

// IntegerColumn is a column of whole numbers.
func IntegerColumn[T Object](name, description string, cell func(T) int32) Column[T] {
	return Column[T]{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description},
		// Tables cross the wire as JSON and are decoded there as int64.
		Cell: func(obj T, _ time.Time) any { return int64(cell(obj)) },
	}
}

// NameColumn is the first column of every kind. The format tells kubectl to prefix
// it with the kind where several kinds are printed together.
func NameColumn[T Object]() Column[T] {
	column := StringColumn("Name", metaDescriptions["name"], func(obj T) string { return obj.GetName() })
	column.Format = "name"
	return column
}

// AgeColumn is the time since creation, as kubectl prints it for built-in kinds.
func AgeColumn[T Object]() Column[T] {
	return Column[T]{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: "Age", Type: "date", Description: metaDescriptions["creationTimestamp"]},
		Cell: func(obj T, now time.Time) any {
			created := obj.GetCreationTimestamp()
			if created.IsZero() {
				return "<unknown>"
			}
			return duration.HumanDuration(now.Sub(created.Time))
		},
	}
}

// Wide moves a column to the output of `kubectl get -o wide`.
func Wide[T Object](column Column[T]) Column[T] {
	column.Priority = wide
	return column
}

// OrNone is the text, or None where there is none.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}

// FormatTime is a point in time as the object itself holds it. Not an age: most of
// the times shown in columns lie ahead, and printers show those as invalid.
func FormatTime(t *metav1.Time) string {
	if t.IsZero() {
		return None
	}
	return t.UTC().Format(time.RFC3339)
}

// metaDescriptions are the texts that the headers of all kinds share with the
// documentation of their metadata.
var metaDescriptions = metav1.ObjectMeta{}.SwaggerDoc()

type tableConvertor[T Object] struct {
	columns     []Column[T]
	definitions []metav1.TableColumnDefinition
	clock       clock.PassiveClock
}

// NewTableConvertor makes the table convertor of a kind out of its columns.
func NewTableConvertor[T Object](c clock.PassiveClock, columns ...Column[T]) rest.TableConvertor {
	definitions := make([]metav1.TableColumnDefinition, 0, len(columns))
	for _, column := range columns {
		definitions = append(definitions, column.TableColumnDefinition)
	}
	return &tableConvertor[T]{columns: columns, definitions: definitions, clock: c}
}

// ConvertToTable implements rest.TableConvertor for one object, and for a list
// with its position in a chunked or watched listing.
func (c *tableConvertor[T]) ConvertToTable(_ context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = c.definitions
	}

	now := c.clock.Now()
	addRow := func(item runtime.Object) error {
		row, err := c.row(item, now)
		if err != nil {
			return err
		}
		table.Rows = append(table.Rows, row)
		return nil
	}
	if !meta.IsListType(object) {
		if err := addRow(object); err != nil {
			return nil, err
		}
		common, err := meta.CommonAccessor(object)
		if err != nil {
			return nil, fmt.Errorf("reading metadata of %T: %w", object, err)
		}
		table.ResourceVersion = common.GetResourceVersion()
		return table, nil
	}

	if err := meta.EachListItem(object, addRow); err != nil {
		return nil, err
	}
	list, err := meta.ListAccessor(object)
	if err != nil {
		return nil, fmt.Errorf("reading list metadata of %T: %w", object, err)
	}
	table.ResourceVersion = list.GetResourceVersion()
	table.Continue = list.GetContinue()
	table.RemainingItemCount = list.GetRemainingItemCount()
	return table, nil
}

func (c *tableConvertor[T]) row(item runtime.Object, now time.Time) (metav1.TableRow, error) {
	obj, ok := item.(T)
	if !ok {
		return metav1.TableRow{}, fmt.Errorf("table of %T cannot show %T", *new(T), item)
	}
	row := metav1.TableRow{
		Cells:  make([]any, 0, len(c.columns)),
		Object: runtime.RawExtension{Object: item},
	}
	for _, column := range c.columns {
		row.Cells = append(row.Cells, column.Cell(obj, now))
	}
	return row, nil
}
