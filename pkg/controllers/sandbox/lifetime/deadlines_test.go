// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// ago and ahead are times relative to now; never is no time.
const (
	ago   = -time.Hour
	ahead = time.Hour
	never = time.Duration(-1 << 62)
)

func at(d time.Duration) *metav1.Time {
	if d == never {
		return nil
	}
	return new(metav1.NewTime(now.Add(d)))
}

func TestDeadlines(t *testing.T) {
	tests := map[string]struct {
		pause, shutdown time.Duration
		retention       string
		change          func(*v1alpha1.Sandbox)
		// Whether there is a time, which is then the one of the spec.
		wantPause, wantShutdown bool
		wantRetained            time.Duration
	}{
		"none":            {pause: never, shutdown: never, wantRetained: never},
		"retention alone": {pause: never, shutdown: never, retention: "2h", wantRetained: never},
		"pause":           {pause: ago, shutdown: never, wantPause: true, wantRetained: never},
		"shutdown":        {pause: never, shutdown: ago, wantShutdown: true, wantRetained: never},
		"kept at shutdown": {
			pause: never, shutdown: ago, change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownPolicy = v1alpha1.ShutdownRetain }, wantRetained: never,
		},
		"both ahead":               {pause: ahead, shutdown: ahead, wantPause: true, wantShutdown: true, wantRetained: never},
		"both due":                 {pause: ago, shutdown: ago, wantPause: true, wantShutdown: true, wantRetained: never},
		"both due now, retained":   {pause: 0, shutdown: 0, retention: "2h", wantPause: true, wantRetained: 2 * time.Hour},
		"both due, for ever":       {pause: ago, shutdown: ago, retention: "forever", wantPause: true, wantRetained: 100 * 365 * 24 * time.Hour},
		"both due, retained oddly": {pause: ago, shutdown: ago, retention: "x", wantPause: true, wantShutdown: true, wantRetained: never},
		"pause due, retained":      {pause: ago, shutdown: ahead, retention: "2h", wantPause: true, wantRetained: 2 * time.Hour},
		"shutdown due, retained":   {pause: ahead, shutdown: ago, retention: "2h", wantPause: true, wantShutdown: true, wantRetained: 2 * time.Hour},
		"both due, paused before": {
			pause: ago, shutdown: ago, retention: "2h", change: func(s *v1alpha1.Sandbox) { s.Spec.Paused = true },
			wantShutdown: true, wantRetained: 2 * time.Hour,
		},
		"both due, failed before": {
			pause: ago, shutdown: ago, retention: "2h", change: func(s *v1alpha1.Sandbox) { s.Status.Phase = v1alpha1.SandboxFailed },
			wantShutdown: true, wantRetained: 2 * time.Hour,
		},
		"being deleted": {
			pause: ago, shutdown: ago, retention: "2h", change: func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = at(0) },
			wantRetained: 2 * time.Hour,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox := &v1alpha1.Sandbox{}
			sandbox.Spec.PauseTime, sandbox.Spec.ShutdownTime = at(test.pause), at(test.shutdown)
			sandbox.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: test.retention}
			if test.change != nil {
				test.change(sandbox)
			}
			got, ok := pauseTime(sandbox)
			if ok != test.wantPause || ok && !got.Equal(now.Add(test.pause)) {
				t.Errorf("pause at %s, %v, want %v", got, ok, test.wantPause)
			}
			got, ok = shutdownTime(sandbox, now)
			if ok != test.wantShutdown || ok && !got.Equal(now.Add(test.shutdown)) {
				t.Errorf("shutdown at %s, %v, want %v", got, ok, test.wantShutdown)
			}
			until, ok := retainedUntil(sandbox, now.Add(300*time.Millisecond))
			if ok != (test.wantRetained != never) || ok && !until.Time.Equal(now.Add(test.wantRetained)) {
				t.Errorf("retained until %s, %v, want %s", until, ok, test.wantRetained)
			}
		})
	}
}
