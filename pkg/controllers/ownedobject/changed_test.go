// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package ownedobject

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestChanged(t *testing.T) {
	before := metav1.ObjectMeta{UID: "u", Generation: 1, ResourceVersion: "1"}
	for name, test := range map[string]struct {
		after metav1.ObjectMeta
		want  bool
	}{
		"its status":     {metav1.ObjectMeta{UID: "u", Generation: 1, ResourceVersion: "2"}, false},
		"its spec":       {metav1.ObjectMeta{UID: "u", Generation: 2, ResourceVersion: "2"}, true},
		"another object": {metav1.ObjectMeta{UID: "v", Generation: 1, ResourceVersion: "2"}, true},
	} {
		e := event.UpdateEvent{ObjectOld: &v1alpha1.Sandbox{ObjectMeta: before}, ObjectNew: &v1alpha1.Sandbox{ObjectMeta: test.after}}
		if got := Changed(e); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
