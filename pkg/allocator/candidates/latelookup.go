// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	// podTemplatesKept is how many PodTemplates are remembered.
	podTemplatesKept = 256
	// podTemplateAge is after what time the cluster is asked again for a PodTemplate
	// that a claim needs, and how long an answer may take.
	podTemplateAge = 10 * time.Second
	// podTemplatePatience is how long after the question claims wait for the first
	// answer of all.
	podTemplatePatience = time.Second
)

// errNoAnswer means that the cluster has not answered yet whether there is a PodTemplate.
var errNoAnswer = errors.New("the cluster has not answered")

// LateLookup is a Lookup for claims that are served from a pool, which must not wait
// for the cluster. It returns what the cluster said last of a PodTemplate, also that there
// was none, and asks again in the background. Only for the first answer claims wait,
// and not for long: without it the lookup fails with errNoAnswer.
type LateLookup struct {
	podtemplate.Lookup
	clock clock.Clock
	// background runs a question; it returns false if it does not.
	background func(func(context.Context)) bool

	// mu is held when background is called, and guards all that is known.
	mu    sync.Mutex
	known *lru.Cache // of *lateTemplate
}

// lateTemplate is what is known of a PodTemplate.
type lateTemplate struct {
	template *corev1.PodTemplate // nil: there was none
	// err is why nothing is known; nil from the first answer on.
	err error
	// asked is when the cluster was last asked, answered is closed when that is over; nil
	// where it is.
	asked    time.Time
	answered chan struct{}
}

// NewLateLookup returns a LateLookup that knows nothing yet. background runs a question, or returns false.
func NewLateLookup(lookup podtemplate.Lookup, c clock.Clock, background func(func(context.Context)) bool) *LateLookup {
	return &LateLookup{Lookup: lookup, clock: c, background: background, known: lru.New(podTemplatesKept)}
}

// PodTemplate implements podtemplate.Lookup.
func (l *LateLookup) PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error) {
	late, now := l.look(types.NamespacedName{Namespace: namespace, Name: name})
	wait := now.asked.Add(podTemplatePatience).Sub(l.clock.Now())
	if now.err == nil || now.answered == nil || wait <= 0 {
		return now.template, now.err
	}
	timer := l.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-now.answered:
	case <-timer.C():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return late.template, late.err
}

// look returns what is known of a PodTemplate, and as it is now. It asks the cluster if
// that was long ago and no question is open.
func (l *LateLookup) look(key types.NamespacedName) (late *lateTemplate, now lateTemplate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known.Get(key); ok {
		late = known.(*lateTemplate)
	} else {
		late = &lateTemplate{err: errNoAnswer}
		l.known.Add(key, late)
	}
	if late.answered == nil && (late.asked.IsZero() || l.clock.Since(late.asked) >= podTemplateAge) &&
		l.background(func(ctx context.Context) { l.ask(ctx, key, late) }) {
		late.asked, late.answered = l.clock.Now(), make(chan struct{})
	}
	return late, *late
}

// ask asks the cluster. Without an answer what is known stays. Why there is none is
// logged, because the returned error is shown to users, who can do nothing about it.
func (l *LateLookup) ask(ctx context.Context, key types.NamespacedName, late *lateTemplate) {
	ctx, cancel := context.WithTimeout(ctx, podTemplateAge)
	defer cancel()
	template, err := l.Lookup.PodTemplate(ctx, key.Namespace, key.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		late.template, late.err = template, nil
	} else {
		klog.FromContext(ctx).Error(err, "Failed to get PodTemplate", "podTemplate", key)
	}
	close(late.answered)
	late.answered = nil
}
