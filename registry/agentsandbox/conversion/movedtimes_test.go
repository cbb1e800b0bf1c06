// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestMovedTimes: a time that a writer moves is the writer's, and what is beside it stays.
func TestMovedTimes(t *testing.T) {
	before := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	after := metav1.NewTime(before.Add(time.Hour))
	spec := func(at *metav1.Time, name string) reflect.Value {
		return reflect.ValueOf(v1alpha1.SandboxClaimSpec{
			TemplateName: name, Lifecycle: &v1alpha1.SandboxClaimLifecycle{ShutdownTime: at, ShutdownPolicy: v1alpha1.ShutdownRetain},
		})
	}
	for what, tc := range map[string]struct{ had, writes, want *metav1.Time }{
		"moved":      {&before, &after, &after},
		"kept":       {&before, &before, &before},
		"set":        {nil, &after, &after},
		"taken away": {&before, nil, nil},
	} {
		got := merged(spec(tc.had, "stored"), spec(tc.had, ""), spec(tc.writes, "")).Interface().(v1alpha1.SandboxClaimSpec)
		if !got.Lifecycle.ShutdownTime.Equal(tc.want) || got.TemplateName != "stored" {
			t.Errorf("%s: got %v, %q", what, got.Lifecycle.ShutdownTime, got.TemplateName)
		}
	}
}
