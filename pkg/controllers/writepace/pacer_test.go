// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package writepace

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func sandboxOf(bytes int) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "box", Annotations: map[string]string{"large": strings.Repeat("x", bytes)},
	}}
}

// TestPauses checks that pauses grow up to a limit, are longer for large objects, and begin anew
// after a quiet time.
func TestPauses(t *testing.T) {
	for name, test := range map[string]struct {
		bytes int
		want  []time.Duration
	}{
		"small": {100, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}},
		"large": {512 << 10, []time.Duration{16, 32, 64, 128, 128}},
	} {
		clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
		p, object := New(clk), sandboxOf(test.bytes)
		key := client.ObjectKeyFromObject(object)
		for range 2 {
			if left := p.Delay(key); left != 0 {
				t.Errorf("%s: the first write waits for %s", name, left)
			}
			var pauses []time.Duration
			for range test.want {
				p.RecordWrite(object)
				left := p.Delay(key)
				pauses = append(pauses, left.Round(time.Second)/time.Second)
				clk.SetTime(clk.Now().Add(left))
			}
			if !slices.Equal(pauses, test.want) {
				t.Errorf("%s: the pauses are %d s, want %d", name, pauses, test.want)
			}
			clk.SetTime(clk.Now().Add(resetAfter))
		}
	}
}

// TestForgets checks that an object that is gone is forgotten, and what was written long ago.
func TestForgets(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	p, object := New(clk), sandboxOf(0)
	p.RecordWrite(object)
	p.Forget(client.ObjectKeyFromObject(object))
	if left := p.Delay(client.ObjectKeyFromObject(object)); left != 0 {
		t.Errorf("an object that was deleted waits for %s", left)
	}
	p.RecordWrite(object)
	clk.SetTime(clk.Now().Add(2 * resetAfter))
	other := sandboxOf(0)
	other.Name = "other"
	if p.RecordWrite(other); len(p.paces) != 1 {
		t.Errorf("%d objects are remembered", len(p.paces))
	}
}
