// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// recorded keeps the last event.
type recorded struct {
	recorder.EventRecorder
	regarding runtime.Object
	note      string
}

func (r *recorded) Eventf(regarding, _ runtime.Object, _, _, _, note string, args ...any) {
	r.regarding, r.note = regarding, fmt.Sprintf(note, args...)
}

// Events that differ in the version of the object alone are one.
func TestEventNamesNoVersion(t *testing.T) {
	r := &recorded{}
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: "u", ResourceVersion: "7"}}
	Recorder{EventRecorder: r, Kind: "Sandbox", Action: "Reconcile"}.Event(sandbox, corev1.EventTypeWarning, "Failed", "100 % "+strings.Repeat("x", 2000))
	want := &corev1.ObjectReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "Sandbox", Namespace: "ns", Name: "box", UID: "u"}
	if diff := cmp.Diff(runtime.Object(want), r.regarding); diff != "" {
		t.Errorf("regarding (-want +got):\n%s", diff)
	}
	if len(r.note) != MaxNote || !strings.HasPrefix(r.note, "100 % x") {
		t.Errorf("note of %d bytes: %s", len(r.note), r.note)
	}
	Recorder{}.Event(sandbox, corev1.EventTypeNormal, "Failed", "where events are not recorded")
}

func TestTruncate(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty":              {"", ""},
		"just fits":          {"12345678", "12345678"},
		"too long":           {"123456789", "12345..."},
		"inside a character": {"1234äöü", "1234..."},
		"after a character":  {"123äöü", "123ä..."},
	} {
		if got := Truncate(test.text, 8); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
