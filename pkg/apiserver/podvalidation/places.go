// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// places bound how many dry runs there are at a time. Who waits for a place of all has one
// of their namespace, so that no namespace has more than those in that line.
type places struct {
	all *semaphore.Weighted

	mu         sync.Mutex
	namespaces map[string]*ownPlaces
}

// ownPlaces are those of a namespace, for as long as there are users.
type ownPlaces struct {
	*semaphore.Weighted
	users int
}

func newPlaces() *places {
	return &places{all: semaphore.NewWeighted(maxAtOnce), namespaces: map[string]*ownPlaces{}}
}

// take waits for a place until ctx is done. leave gives it back.
func (p *places) take(ctx context.Context, namespace string) (leave func(), err error) {
	own := p.come(namespace)
	if err := own.Acquire(ctx, 1); err != nil {
		p.goAway(namespace, own)
		return nil, err
	}
	if err := p.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		p.goAway(namespace, own)
		return nil, err
	}
	return func() {
		p.all.Release(1)
		own.Release(1)
		p.goAway(namespace, own)
	}, nil
}

func (p *places) come(namespace string) *ownPlaces {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.namespaces[namespace]
	if own == nil {
		own = &ownPlaces{Weighted: semaphore.NewWeighted(maxAtOnceOfNamespace)}
		p.namespaces[namespace] = own
	}
	own.users++
	return own
}

func (p *places) goAway(namespace string, own *ownPlaces) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(p.namespaces, namespace)
	}
}
