// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// phone is a lookup that asks a shelf, and waits for the line to be free.
type phone struct {
	*LateLookup
	*shelf
	clock *clocktesting.FakeClock
	calls sync.WaitGroup
	free  chan struct{}
}

func newPhone() *phone {
	p := &phone{shelf: &shelf{}, clock: clocktesting.NewFakeClock(birth), free: make(chan struct{})}
	close(p.free)
	p.LateLookup = NewLateLookup(p.shelf, p.clock, func(f func(context.Context)) bool {
		p.calls.Go(func() {
			<-p.free
			f(context.Background())
		})
		return true
	})
	return p
}

// has says what the cluster has: a PodTemplate whose versions differ,
// or none.
func (p *phone) has(version string) {
	p.podTemplate, p.inCluster = nil, nil
	if version != "" {
		p.inCluster = &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
}

// expect asks for the PodTemplate, and then how often the cluster was asked by now.
func (p *phone) expect(t *testing.T, version string, asked int) {
	t.Helper()
	template, err := p.LateLookup.PodTemplate(t.Context(), "ns", "cluster")
	p.calls.Wait()
	got := ""
	if template != nil {
		got = template.ResourceVersion
	}
	if got != version || err != nil || p.asked != asked {
		t.Errorf("got %q, %v, asked %d times, want %q, %d", got, err, p.asked, version, asked)
	}
}

// TestClusterIsAskedInTheBackground: claims get what it said last.
func TestClusterIsAskedInTheBackground(t *testing.T) {
	p := newPhone()
	p.expect(t, "", 1)
	p.has("1")
	p.expect(t, "", 1)
	p.clock.Step(podTemplateAge)
	p.expect(t, "", 2)
	p.expect(t, "1", 2)

	p.podTemplate = errDown
	p.clock.Step(podTemplateAge)
	p.expect(t, "1", 3)
	p.expect(t, "1", 3) // no answer is as good for a while
	p.has("2")
	p.clock.Step(podTemplateAge)
	p.expect(t, "1", 4)
	p.expect(t, "2", 4)
	p.has("")
	p.clock.Step(podTemplateAge)
	p.expect(t, "2", 5)
	p.expect(t, "", 5)
}

// TestClusterThatNeverAnswered: claims ask it once in a while and no more.
func TestClusterThatNeverAnswered(t *testing.T) {
	p := newPhone()
	p.podTemplate = errDown
	for range 2 {
		if _, err := p.LateLookup.PodTemplate(t.Context(), "ns", "cluster"); !errors.Is(err, errNoAnswer) || errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		if p.calls.Wait(); p.asked != 1 {
			t.Errorf("asked %d times", p.asked)
		}
	}
	p.has("1")
	p.clock.Step(podTemplateAge)
	p.expect(t, "1", 2)
}

// TestPatienceWithTheCluster: claims wait for the first answer together, and not for long.
func TestPatienceWithTheCluster(t *testing.T) {
	p := newPhone()
	p.has("1")
	p.free = make(chan struct{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.LateLookup.PodTemplate(gone, "ns", "cluster"); !errors.Is(err, context.Canceled) {
		t.Errorf("who is gone: %v", err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := p.LateLookup.PodTemplate(t.Context(), "ns", "cluster")
		result <- err
	}()
	for !p.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	p.clock.Step(podTemplatePatience)
	if err := <-result; !errors.Is(err, errNoAnswer) {
		t.Errorf("who waited: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if _, err := p.LateLookup.PodTemplate(soon, "ns", "cluster"); !errors.Is(err, errNoAnswer) {
			t.Errorf("who came later: %v", err)
		}
		p.clock.Step(podTemplateAge) // the question is still the same
	}
	close(p.free)
	p.calls.Wait()
	if p.asked != 1 {
		t.Errorf("asked %d times", p.asked)
	}
	p.expect(t, "1", 2)
}
