// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// flooded is the namespace of the user who floods, and calm that of another.
const flooded, calm = "flooded", "calm"

// TestFloodsOfOneUser floods the API, through kube-apiserver and two API servers, with requests of one user that store
// nothing, and makes sure that all claims of another user are answered. It prints how long these take. kube-apiserver
// and the load have the same processors, so the times are no more than a comparison in one run.
func TestFloodsOfOneUser(t *testing.T) {
	expect.LongOnly(t)
	s := newSite(t)
	s.install(t, controlplane.SandlotOptions{})
	for ns, user := range map[string]string{flooded: "eve", calm: "ann"} {
		s.makeNamespace(t, ns)
		s.grant(t, ns, "edit", user)
		who := s.user(t, user)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	eve, ann := s.user(t, "eve"), s.user(t, "ann")
	const large = 40 // together more than a client receives of a response that it does not read
	templates := eve.SandboxTemplates(flooded)
	var stored *v1alpha1.SandboxTemplate
	for i := range large {
		var err error
		if stored, err = templates.Create(t.Context(), builders.LargeTemplate(fmt.Sprintf("large-%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const claims = 40
	expect.FilledPool(t, s, calm, 2*claims)
	expect.ClaimTimes(t, ann, calm, claims) // connections are made
	alone := expect.ClaimTimes(t, ann, calm, claims)

	dryRun := []string{metav1.DryRunAll}
	open := func(ctx context.Context, query ...string) (io.ReadCloser, error) {
		request := eve.RESTClient().Get().Namespace(flooded).Resource("sandboxtemplates")
		for i := 0; i < len(query); i += 2 {
			request.Param(query[i], query[i+1])
		}
		return request.Stream(ctx)
	}
	list := func(ctx context.Context, read bool) error {
		body, err := open(ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		if read {
			_, err = io.Copy(io.Discard, body)
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		return nil
	}
	for _, flood := range []struct {
		name    string
		atOnce  int
		request func(ctx context.Context) error
	}{
		{"dry-run patches", 200, func(ctx context.Context) error {
			_, err := templates.Patch(ctx, stored.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dryRun})
			return err
		}},
		{"dry-run updates", 200, func(ctx context.Context) error {
			_, err := templates.Update(ctx, stored, metav1.UpdateOptions{DryRun: dryRun})
			return err
		}},
		{"dry-run creates", 200, func(ctx context.Context) error {
			_, err := templates.Create(ctx, builders.LargeTemplate("created"), metav1.CreateOptions{DryRun: dryRun})
			return err
		}},
		{"dry-run deletes", 200, func(ctx context.Context) error {
			return templates.Delete(ctx, stored.Name, metav1.DeleteOptions{DryRun: dryRun})
		}},
		{"dry-run deletions of collections", 50, func(ctx context.Context) error {
			return templates.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		}},
		{"gets", 200, func(ctx context.Context) error {
			_, err := eve.RESTClient().Get().Namespace(flooded).Resource("sandboxtemplates").Name(stored.Name).DoRaw(ctx)
			return err
		}},
		{"lists", 200, func(ctx context.Context) error { return list(ctx, true) }},
		{"unread lists", 100, func(ctx context.Context) error { return list(ctx, false) }},
		{"watches of all that exists", 200, func(ctx context.Context) error {
			body, err := open(ctx, "watch", "true", "resourceVersion", "0")
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.CopyN(io.Discard, body, large*200_000)
			return err
		}},
		{"watches", 2000, func(ctx context.Context) error {
			return watchFor(ctx, templates, stored.ResourceVersion, 5*time.Second)
		}},
	} {
		t.Run(flood.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var done, failed atomic.Int64
			var running sync.WaitGroup
			for range flood.atOnce {
				running.Go(func() {
					for ctx.Err() == nil {
						if err := flood.request(ctx); err != nil {
							failed.Add(1)
						} else {
							done.Add(1)
						}
					}
				})
			}
			defer running.Wait()
			defer stop()
			now := expect.ClaimTimes(t, ann, calm, claims)
			t.Logf("alone: %s; now: %s, with %d requests answered and %d not", describe(alone), describe(now), done.Load(), failed.Load())
		})
	}
}

// watchFor watches what comes after a version, for a time.
func watchFor(ctx context.Context, templates typed.SandboxTemplateInterface, after string, long time.Duration) error {
	w, err := templates.Watch(ctx, metav1.ListOptions{ResourceVersion: after})
	if err != nil {
		return err
	}
	defer w.Stop()
	for end := time.After(long); ; {
		select {
		case _, ok := <-w.ResultChan():
			if !ok {
				return io.ErrUnexpectedEOF
			}
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// describe returns the median and the longest of some times, the shortest of which is the first.
func describe(times []time.Duration) string {
	return fmt.Sprintf("median %s, longest %s", times[len(times)/2], times[len(times)-1])
}
