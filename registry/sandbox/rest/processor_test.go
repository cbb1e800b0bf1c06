// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"testing"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// TestReadsWaitForAProcessor checks which reads and deletions wait for a processor: those of large objects and of several.
// One that is refused does nothing.
func TestReadsWaitForAProcessor(t *testing.T) {
	fixture := registrytest.New(t)
	storage, _ := newStorage(t, fixture, &Provider{})
	templates := storage["sandboxtemplates"].(rest.StandardStorage)
	small, large := builders.Template("small"), builders.LargeTemplate("large")
	ctx := registrytest.Context(t, "sandboxtemplates", "")
	for _, template := range []*v1alpha1.SandboxTemplate{small, large} {
		template.Namespace = registrytest.Namespace
		if _, err := templates.Create(ctx, template, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	busy := errors.New("busy")
	dryRun := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	remove := func(ctx context.Context, name string, options *metav1.DeleteOptions) error {
		_, _, err := templates.Delete(ctx, name, rest.ValidateAllObjectFunc, options)
		return err
	}
	watch := func(ctx context.Context, from string) error {
		events, err := templates.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: from})
		if err == nil {
			events.Stop()
		}
		return err
	}
	list, err := templates.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	latest := list.(*v1alpha1.SandboxTemplateList).ResourceVersion
	for name, tc := range map[string]struct {
		request func(ctx context.Context) error
		waits   bool
	}{
		"get of a small object": {func(ctx context.Context) error {
			_, err := templates.Get(ctx, "small", &metav1.GetOptions{})
			return err
		}, false},
		"get of a large object": {func(ctx context.Context) error {
			_, err := templates.Get(ctx, "large", &metav1.GetOptions{})
			return err
		}, true},
		"list": {func(ctx context.Context) error {
			_, err := templates.List(ctx, &metainternalversion.ListOptions{})
			return err
		}, true},
		"watch of all":             {func(ctx context.Context) error { return watch(ctx, "0") }, true},
		"watch from now on":        {func(ctx context.Context) error { return watch(ctx, latest) }, false},
		"dry run of a deletion":    {func(ctx context.Context) error { return remove(ctx, "large", dryRun) }, true},
		"deletion of a small one":  {func(ctx context.Context) error { return remove(ctx, "small", dryRun) }, false},
		"deletion that is refused": {func(ctx context.Context) error { return remove(ctx, "large", &metav1.DeleteOptions{}) }, true},
	} {
		waits := 0
		err := tc.request(base.WithProcessorWait(ctx, func(context.Context) error {
			waits++
			return busy
		}))
		if (waits > 0) != tc.waits || errors.Is(err, busy) != tc.waits || err != nil && !tc.waits {
			t.Errorf("%s: waited %d times, %v", name, waits, err)
		}
	}
	if _, err := templates.Get(ctx, "large", &metav1.GetOptions{}); err != nil {
		t.Errorf("after a deletion that was refused: %v", err)
	}
}
