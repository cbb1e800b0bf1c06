// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestDryRunsAtOnce sends hundreds of dry runs at a time: creates of 60 KB, small patches and updates of a large object, and
// small requests about many sandboxes. Nothing of them is stored, so no limit of writes counts them. A user has two of the
// largest running at a time on up to four processors, and the load takes processors too. So claims of others may take ten
// times as long on a quiet machine, or the time for which two dry runs may have both of two processors.
func TestDryRunsAtOnce(t *testing.T) {
	expect.LongOnly(t)
	const atOnce, bothProcessors = 200, 100 * time.Millisecond
	s := startServer(t)
	client := s.as(t, eve)
	template := builders.Template("large")
	template.Spec.Template = variables(t, "template", 10, 200)
	stored, err := client.SandboxTemplates(eve).Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const many = 1000
	s.makeSet(t, eve, builders.Set("pool", 2*many))
	if _, err := client.SandboxClaims(eve).Create(t.Context(), builders.Claim("large", many), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, s, eve, "pool", 2*many)
	small := stored.DeepCopy()
	small.Spec.Template, small.ManagedFields = builders.PodTemplate(), nil
	dryRun := []string{metav1.DryRunAll}
	created := builders.Template("created")
	created.Spec.Template = variables(t, "template", 10, 200)
	innocent := s.innocent(t)
	for name, request := range map[string]func(context.Context) error{
		"creates": func(ctx context.Context) error {
			_, err := client.SandboxTemplates(eve).Create(ctx, created, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"patches": func(ctx context.Context) error {
			_, err := client.SandboxTemplates(eve).Patch(ctx, "large", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
				metav1.PatchOptions{DryRun: dryRun})
			return err
		},
		"updates": func(ctx context.Context) error {
			_, err := client.SandboxTemplates(eve).Update(ctx, small, metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
		"claims": func(ctx context.Context) error {
			_, err := client.SandboxClaims(eve).Create(ctx, builders.Claim("more", 2*many), metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"releases": func(ctx context.Context) error {
			_, err := client.SandboxClaims(eve).Release(ctx, "large", &v1alpha1.SandboxClaimRelease{}, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"deletions": func(ctx context.Context) error {
			return client.Sandboxes(eve).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		},
	} {
		ctx, stop := context.WithCancel(t.Context())
		var done, refused atomic.Int64
		var load sync.WaitGroup
		for range atOnce {
			load.Go(func() {
				for ctx.Err() == nil {
					switch err := request(ctx); {
					case err == nil:
						done.Add(1)
					case apierrors.IsTooManyRequests(err):
						refused.Add(1)
					case ctx.Err() == nil:
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
		time.Sleep(3 * time.Second) // what is refused is so after a second
		abused := innocent.median(t)
		stop()
		load.Wait()
		t.Logf("%s: %d dry runs were answered, and %d refused; an innocent claim takes %s alone and %s now",
			name, done.Load(), refused.Load(), innocent.alone, abused)
		if limit := max(10*innocent.alone, bothProcessors); abused > limit {
			t.Errorf("%s: an innocent claim takes %s, more than %s", name, abused, limit)
		}
	}
}
