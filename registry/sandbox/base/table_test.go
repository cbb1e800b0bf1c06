// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// config is any kind that is not ours: the package knows none.
func config(name string, age time.Duration) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-age)),
	}}
}

func columns() []Column[*corev1.ConfigMap] {
	return []Column[*corev1.ConfigMap]{
		NameColumn[*corev1.ConfigMap](),
		IntegerColumn("Keys", "how many", func(c *corev1.ConfigMap) int32 { return int32(len(c.Data)) }),
		AgeColumn[*corev1.ConfigMap](),
		Wide(StringColumn("Note", "free text", func(c *corev1.ConfigMap) string { return OrNone(c.Data["note"]) })),
	}
}

func TestConvertToTable(t *testing.T) {
	first, second := config("a", 90*time.Second), config("b", 0)
	first.Data = map[string]string{"note": "x"}
	second.CreationTimestamp = metav1.Time{}

	headers := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metaDescriptions["name"]},
		{Name: "Keys", Type: "integer", Description: "how many"},
		{Name: "Age", Type: "date", Description: metaDescriptions["creationTimestamp"]},
		{Name: "Note", Type: "string", Description: "free text", Priority: 1},
	}
	rowA := metav1.TableRow{Cells: []any{"a", int64(1), "90s", "x"}, Object: runtime.RawExtension{Object: first}}
	rowB := metav1.TableRow{Cells: []any{"b", int64(0), "<unknown>", "<none>"}, Object: runtime.RawExtension{Object: second}}

	tests := map[string]struct {
		object  runtime.Object
		options runtime.Object
		want    *metav1.Table
	}{
		"one object": {
			object: first,
			want: &metav1.Table{
				ListMeta:          metav1.ListMeta{ResourceVersion: "7"},
				ColumnDefinitions: headers, Rows: []metav1.TableRow{rowA},
			},
		},
		"later events of a watch repeat no headers": {
			object:  first,
			options: &metav1.TableOptions{NoHeaders: true},
			want:    &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Rows: []metav1.TableRow{rowA}},
		},
		"a chunk of a list": {
			object: &corev1.ConfigMapList{
				ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: ptr.To[int64](3)},
				Items:    []corev1.ConfigMap{*first, *second},
			},
			options: &metav1.TableOptions{},
			want: &metav1.Table{
				ListMeta:          metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: ptr.To[int64](3)},
				ColumnDefinitions: headers, Rows: []metav1.TableRow{rowA, rowB},
			},
		},
		"an empty list": {
			object: &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}},
			want:   &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, ColumnDefinitions: headers},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			convertor := NewTableConvertor(testclock.NewFakePassiveClock(now), columns()...)
			got, err := convertor.ConvertToTable(t.Context(), tc.object, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConvertToTableOfAnotherKind(t *testing.T) {
	convertor := NewTableConvertor(testclock.NewFakePassiveClock(now), columns()...)
	if _, err := convertor.ConvertToTable(t.Context(), &corev1.Secret{}, nil); err == nil {
		t.Error("want an error")
	}
}

func TestTime(t *testing.T) {
	zone := time.FixedZone("east", 2*60*60)
	for name, tc := range map[string]struct {
		in   *metav1.Time
		want string
	}{
		"absent": {nil, "<none>"},
		"zero":   {&metav1.Time{}, "<none>"},
		"in UTC": {new(metav1.NewTime(now.In(zone))), "2026-09-01T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := FormatTime(tc.in); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
