// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	setsOfTemplate = "sets/3"
	templateName   = "template"
	// largeTemplate is about what the large pod template has in letters.
	largeTemplate = 32 << 10
)

// runSets compares claims on the three sets of a template with claims on the one
// set of another, and measures what sandboxes of sets with a reference hold.
func (b *bench) runSets(ctx context.Context) (err error) {
	if !b.wants(setsOfTemplate) {
		return nil
	}
	operations := 1 + b.operations(b.few())
	single := pool{namespace: "bench-single", size: operations, template: templateName}
	pools := []pool{single}
	for _, set := range []string{"a", "b", "c"} {
		// Each could serve all claims but a third: they are taken from in turn.
		pools = append(pools, pool{namespace: "bench-three", size: operations/3 + 1, set: set, template: templateName})
	}
	large := paddedTemplate(largeTemplate)
	inline := pool{namespace: "bench-inline", size: 1, pods: large}
	referring := pool{namespace: "bench-referring", size: 1, pods: large, template: templateName}
	s, err := filledServer(ctx, b.settings, filepath.Join(b.dir, "sets"), append(pools, inline, referring))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	figures := &setFigures{TemplateBytes: len(large)}
	for p, bytes := range map[pool]*int{inline: &figures.BytesInline, referring: &figures.BytesReferring, single: &figures.BytesOfSmall} {
		if *bytes, err = storedBytes(ctx, s, p); err != nil {
			return fmt.Errorf("%s: %w", setsOfTemplate, err)
		}
	}
	figures.BytesForReference = figures.BytesReferring - figures.BytesOfSmall
	three, err := newFixture(ctx, setsOfTemplate, 1, s, pools[1])
	if err != nil {
		return fmt.Errorf("%s: %w", setsOfTemplate, err)
	}
	r, err := b.compareSets(ctx, three, newClaimer(s, single), figures)
	if err != nil {
		return fmt.Errorf("%s: %w", setsOfTemplate, err)
	}
	return b.report(r)
}

func (b *bench) compareSets(ctx context.Context, three *fixture, single *claimer, figures *setFigures) (*result, error) {
	r, all, err := three.compare(ctx, b.rounds,
		three.claimer.arm("claim on three sets", b.few(), 1),
		three.plain.arm(b.few()),
		single.arm("claim on one set", b.few(), 1))
	if err == nil {
		err = single.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.Claims += single.claims
	r.Failed += single.failed
	figures.SingleSetP50 = number(all[2].p50())
	figures.SetsRatio = number(ratio(all[0], all[2], sample.p50))
	r.setFigures = figures
	// Names and addresses differ in length.
	r.judge(atMost("sets_ratio", figures.SetsRatio, 1.2), atMost("bytes_grown_with_template", number(figures.BytesForReference), 64))
	return r, nil
}

// storedBytes is the size of a sandbox of a pool.
func storedBytes(ctx context.Context, s *server, p pool) (int, error) {
	sandboxes, err := s.clients[0].AgentsV1alpha1().Sandboxes(p.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelSandboxPool + "=" + p.name(), Limit: 1,
	})
	if err != nil {
		return 0, err
	}
	if len(sandboxes.Items) == 0 {
		return 0, fmt.Errorf("set %s/%s has no sandboxes", p.namespace, p.name())
	}
	return sizeOf(&sandboxes.Items[0])
}
