// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// setPatch is the patch of the set that refers to a template.
const setPatch = `{"metadata":{"labels":{"size":"large"}},"spec":{"containers":[{"name":"sandbox","resources":{"requests":{"cpu":"2"}}}]}}`

// runFills compares how fast a set fills that refers to a template, with a patch,
// with one that has a pod template of its own.
func runFills(t *stage, r *result) {
	size := max(t.count/2, 1)
	referring := pool{namespace: "bench-referring", size: size, template: templateName}
	inline := pool{namespace: "bench-inline", size: size}
	s := t.server(t.TempDir(), t.connections)
	for _, p := range []pool{referring, inline} {
		// One sandbox is made, so that all that is done once has been done.
		s.makeModel(t.ctx, p)
		change := map[string]any{"scaleStrategy": release, "replicas": 1}
		if p.template != "" {
			change["patch"] = runtime.RawExtension{Raw: []byte(setPatch)}
		}
		s.patchSet(t.ctx, p, change)
		s.awaitSet(t.ctx, p, "is rolled out", func(status v1alpha1.SandboxSetStatus) bool {
			return status.Replicas == status.UpdatedAvailableReplicas
		})
		s.scale(t.ctx, p, 0)
		s.awaitStock(t.ctx, p.of(0))
	}
	before := s.counts(t.ctx)[patches]
	if before < 1 {
		check(errors.New("the server has applied a patch and does not count it"))
	}
	fill := func(name string, p pool) arm {
		return arm{
			name: name, count: 1, cpu: s.cpu, profiled: s,
			do: func(ctx context.Context, _ int) { s.fill(ctx, p) },
			after: func(ctx context.Context) {
				s.scale(ctx, p, 0)
				s.awaitStock(ctx, p.of(0))
				s.idle(ctx)
			},
		}
	}
	// An even number of rounds lets each set be the first as often.
	all := t.compare(r.Case, r.Clients, t.rounds+t.rounds%2, fill("referring", referring), fill("inline", inline))
	r.set("sandboxes_per_fill", float64(size))
	r.set("referring_fill_per_s", float64(size)*all[0].rate())
	r.set("inline_fill_per_s", float64(size)*all[1].rate())
	r.set("fill_ratio", ratio(all[0], all[1], sample.rate))
	// What a fill costs the server for one sandbox.
	r.set("referring_cpu_ms", all[0].cpuEach()/float64(size))
	r.set("inline_cpu_ms", all[1].cpuEach()/float64(size))
	r.set("patches_while_filling", s.counts(t.ctx)[patches]-before)
	r.set("cache_hit_ns", cacheHit(t.ctx))
}

func (s *server) scale(ctx context.Context, p pool, replicas int) {
	s.patchSet(ctx, p, map[string]any{"replicas": replicas})
}

// fill is over when all sandboxes can be claimed. What the API server says of its
// index is asked, because the status of a set follows by up to a second.
func (s *server) fill(ctx context.Context, p pool) {
	s.scale(ctx, p, p.size)
	for began := time.Now(); ; {
		available := s.available(ctx, p)
		took := time.Since(began)
		switch {
		case available == p.size:
			return
		case took > poolTimeout:
			check(fmt.Errorf("set %s/%s has %d available sandboxes instead of %d after %s", p.namespace, p.name(), available, p.size, took))
		}
		check(sleep(ctx, nextLook(took, available, p.size)))
	}
}

// nextLook is after what time to look at a fill again: half of what is left of it, if
// it continues as before. A look costs as much as several sandboxes do.
func nextLook(took time.Duration, available, size int) time.Duration {
	const least, most = 20 * time.Millisecond, 500 * time.Millisecond
	if available == 0 {
		return 5 * least
	}
	left := time.Duration(float64(took) * float64(size-available) / float64(available))
	return min(max(left/2, least), most)
}

// cacheHit is how long it takes to find a patched pod template again, in ns.
func cacheHit(ctx context.Context) float64 {
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{
		Namespace: "bench", Name: templateName, UID: templateName, ResourceVersion: "1",
	}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(podTemplate)}
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: setName}}
	set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: templateName}
	set.Spec.Patch = &runtime.RawExtension{Raw: []byte(setPatch)}
	cache, lookup := podtemplate.NewCache(), oneTemplate{template}
	var failed error
	hits := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := cache.ResolveSet(ctx, set, lookup); err != nil {
				failed = err
				return
			}
		}
	})
	check(failed)
	if cache.Patches() != 1 {
		check(fmt.Errorf("%d patches were applied for one template", cache.Patches()))
	}
	return float64(hits.T.Nanoseconds()) / float64(max(hits.N, 1))
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
