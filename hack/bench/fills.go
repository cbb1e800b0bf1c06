// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	fillReferring = "fill/ref"
	// setPatch is the patch of the set that refers to a template.
	setPatch = `{"metadata":{"labels":{"size":"large"}},"spec":{"containers":[{"name":"sandbox","resources":{"requests":{"cpu":"2"}}}]}}`
	// maxCacheHit is on the scale of a microsecond.
	maxCacheHit = 2000
)

// fillRounds is how many rounds there are: an even number of them lets each set be
// the first as often.
func (o *settings) fillRounds() int { return o.rounds + o.rounds%2 }

// fillOf is how many sandboxes are made at a time.
func (o *settings) fillOf() int { return max(o.count/2, 1) }

// runFills compares how fast a set fills that refers to a template, with a patch,
// with one that has a pod template of its own.
func (b *bench) runFills(ctx context.Context) (err error) {
	if !b.wants(fillReferring) {
		return nil
	}
	s, err := startServer(ctx, b.program, filepath.Join(b.dir, "fills"), b.connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := b.compareFills(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", fillReferring, err)
	}
	return b.report(r)
}

func (b *bench) compareFills(ctx context.Context, s *server) (*result, error) {
	referring := &filler{server: s, pool: pool{namespace: "bench-referring", size: b.fillOf(), template: templateName}}
	inline := &filler{server: s, pool: pool{namespace: "bench-inline", size: b.fillOf()}}
	for _, f := range []*filler{referring, inline} {
		if err := f.create(ctx); err != nil {
			return nil, err
		}
	}
	before, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	if before.patches < 1 {
		return nil, errors.New("the server has applied a patch and does not count it")
	}
	all, err := compare(ctx, fillReferring, 1, b.fillRounds(), []arm{referring.arm("referring"), inline.arm("inline")})
	if err != nil {
		return nil, err
	}
	after, err := s.counters(ctx)
	if err != nil {
		return nil, err
	}
	hit, err := cacheHit(ctx)
	if err != nil {
		return nil, err
	}
	made := float64(b.fillOf())
	r := &result{Case: fillReferring, Clients: 1, fillFigures: &fillFigures{
		Filled:        b.fillOf(),
		ReferringPerS: number(made * all[0].rate()), InlinePerS: number(made * all[1].rate()),
		FillRatio:    number(ratio(all[0], all[1], sample.rate)),
		ReferringCPU: number(all[0].cpuEach() / made), InlineCPU: number(all[1].cpuEach() / made),
		Patches:  number(after.minus(before).patches),
		CacheHit: number(hit),
	}}
	r.judge(atLeast("fill_ratio", r.FillRatio, 0.95), atMost("patches_while_filling", r.Patches, 0),
		atMost("cache_hit_ns", r.CacheHit, maxCacheHit))
	return r, nil
}

// filler fills one set and empties it again.
type filler struct {
	server *server
	pool   pool
}

// create makes the set, with one sandbox, so that all that is done once has been done.
func (f *filler) create(ctx context.Context) error {
	if _, err := f.server.makeModel(ctx, f.pool); err != nil {
		return err
	}
	change := map[string]any{"scaleStrategy": release, "replicas": 1}
	if f.pool.template != "" {
		change["patch"] = runtime.RawExtension{Raw: []byte(setPatch)}
	}
	if err := f.server.patchSet(ctx, f.pool, change); err != nil {
		return err
	}
	if err := f.server.awaitRevision(ctx, f.pool); err != nil {
		return err
	}
	return f.empty(ctx)
}

// fill is over when all sandboxes can be claimed. What the API server says of its
// index is asked, because the status of a set follows by up to a second.
func (f *filler) fill(ctx context.Context) error {
	if err := f.scale(ctx, f.pool.size); err != nil {
		return err
	}
	for began := time.Now(); ; {
		available, err := f.server.available(ctx, f.pool)
		took := time.Since(began)
		switch {
		case err != nil || available == f.pool.size:
			return err
		case took > poolTimeout:
			return fmt.Errorf("set %s/%s has %d available sandboxes instead of %d after %s",
				f.pool.namespace, f.pool.name(), available, f.pool.size, poolTimeout)
		}
		if err := sleep(ctx, nextLook(took, available, f.pool.size)); err != nil {
			return err
		}
	}
}

// nextLook is after what time to look at a fill again: half of what is left of it, if
// it goes on as before. A look costs as much as several sandboxes do.
func nextLook(took time.Duration, available, size int) time.Duration {
	const least, most = 20 * time.Millisecond, 500 * time.Millisecond
	if available == 0 {
		return 5 * least
	}
	left := time.Duration(float64(took) * float64(size-available) / float64(available))
	return min(max(left/2, least), most)
}

func (f *filler) empty(ctx context.Context) error {
	if err := f.scale(ctx, 0); err != nil {
		return err
	}
	return f.server.awaitStock(ctx, f.pool.of(0))
}

func (f *filler) scale(ctx context.Context, replicas int) error {
	return f.server.patchSet(ctx, f.pool, map[string]any{"replicas": replicas})
}

// arm fills the set once a round.
func (f *filler) arm(name string) arm {
	return arm{
		name: name, count: 1, cpu: f.server.cpu,
		do: func(ctx context.Context, _ int) error { return f.fill(ctx) },
		after: func(ctx context.Context) error {
			if err := f.empty(ctx); err != nil {
				return err
			}
			return f.server.idle(ctx)
		},
	}
}

// cacheHit is how long it takes to find a patched pod template again, in ns.
func cacheHit(ctx context.Context) (float64, error) {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: "bench", Name: templateName, UID: templateName, ResourceVersion: "1",
	}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(podTemplate)}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: setName}}
	set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: templateName}
	set.Spec.Patch = &runtime.RawExtension{Raw: []byte(setPatch)}
	cache, lookup := podtemplate.NewCache(), oneTemplate{template}
	var failed error
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := cache.ResolveSet(ctx, set, lookup); err != nil {
				failed = err
				return
			}
		}
	})
	if failed == nil && cache.Patches() != 1 {
		failed = fmt.Errorf("%d patches were applied for one template", cache.Patches())
	}
	return float64(result.T.Nanoseconds()) / float64(max(result.N, 1)), failed
}

// oneTemplate is a lookup that knows one template.
type oneTemplate struct{ template *v1alpha1.SandboxTemplate }

// SandboxTemplate implements podtemplate.Lookup.
func (o oneTemplate) SandboxTemplate(context.Context, string, string) (*v1alpha1.SandboxTemplate, error) {
	return o.template, nil
}

// PodTemplate implements podtemplate.Lookup.
func (oneTemplate) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	return nil, nil
}
