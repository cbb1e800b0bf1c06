// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package throttles

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestThrottles checks that one claim of a Key is tried at a time, that the others are spread,
// and that throttles are bounded and expire.
func TestThrottles(t *testing.T) {
	now := time.Unix(1e9, 0)
	key := Key{"ns", "eve"}
	th := New()
	if th.Delay(key, "a", now) != 0 {
		t.Error("a claim waits although nothing is throttled")
	}
	th.Rejected(key, 10*time.Second, now)
	waits := map[time.Duration]bool{}
	for i := range 100 {
		left := th.Delay(key, types.UID(fmt.Sprint(i)), now)
		if waits[left] = true; left < 10*time.Second || left > 20*time.Second || left != th.Delay(key, types.UID(fmt.Sprint(i)), now) {
			t.Errorf("a claim waits for %s", left)
		}
	}
	if len(waits) < 50 {
		t.Errorf("100 claims wait for %d different times", len(waits))
	}
	if th.Delay(Key{"ns", "alice"}, "a", now) != 0 || th.Delay(Key{"other", "eve"}, "a", now) != 0 {
		t.Error("another Key is throttled")
	}
	now = now.Add(10 * time.Second)
	for claim, want := range map[types.UID]bool{"a": true, "b": false} {
		th.Done(key, "b")
		th.Delay(key, "a", now)
		if tries := th.Delay(key, claim, now) == 0; tries != want {
			t.Errorf("claim %s tries: %t", claim, tries)
		}
	}
	th.Done(key, "b")
	if th.Delay(key, "b", now) == 0 {
		t.Error("another claim ends the try of the first")
	}
	if th.Done(key, "a"); th.Delay(key, "b", now) != 0 {
		t.Error("no other claim tries after the first")
	}
	if th.Accepted(key); th.Delay(key, "c", now) != 0 || th.n.Load() != 0 {
		t.Error("claims wait after one has succeeded")
	}
	for i := range 2 * maxThrottles {
		th.Rejected(Key{"ns", fmt.Sprint(i)}, time.Second, now)
	}
	if n := len(th.byKey); n != maxThrottles {
		t.Errorf("%d are remembered", n)
	}
	if th.RemoveExpired(now.Add(time.Second + throttleTTL)); th.n.Load() != 0 || len(th.byKey) != 0 {
		t.Errorf("%d are not removed", len(th.byKey))
	}
}
