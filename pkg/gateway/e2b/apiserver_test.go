// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// largeTemplate is a pod template of 200 KB.
func largeTemplate() *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"image":"image","name":"main","env":[{"name":"A","value":%q}]}]}}`, strings.Repeat("v", 200_000))}
}

// largeSets makes SandboxSets of a team with large templates.
func (w *world) largeSets(team string, n int) (names []string) {
	w.Helper()
	for i := range n {
		set := builders.Set(fmt.Sprintf("large-%02d", i), 0)
		set.Namespace, set.Spec.Template = team, largeTemplate()
		if _, err := w.server.Client.AgentsV1alpha1().SandboxSets(team).Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		names = append(names, set.Name)
	}
	return names
}

// scale scales a SandboxSet, and waits until it is full.
func (w *world) scale(namespace, name string, replicas int32) {
	w.Helper()
	scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	sets := w.server.Client.AgentsV1alpha1().SandboxSets(namespace)
	if _, err := sets.Patch(w.Context(), name, "application/merge-patch+json", scale, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	w.filled(namespace, name, replicas)
}

// watchBytes returns how many bytes of one answer of the API server have been read at most.
func (w *world) watchBytes() (most func() int) {
	var mu sync.Mutex
	largest := 0
	read := func(_ *http.Request, bytes int) error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, bytes)
		return nil
	}
	w.read.Store(&read)
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return largest
	}
}

// TestLargePages: however large templates and sandboxes are, no list has more than a part of
// them in memory at a time, and it is complete.
func TestLargePages(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	names := w.largeSets("team", 30)
	most := w.watchBytes()
	var templates []mapping.Template
	w.want(http.StatusOK, key, "GET", "/templates", "/templates", "").into(t, &templates)
	var got []string
	for i := range templates {
		got = append(got, templates[i].TemplateID)
	}
	if !slices.Equal(got, names) {
		t.Errorf("lists %q", got)
	}
	if most() > e2b.MaxResponse+1 {
		t.Errorf("%d bytes of one answer are read", most())
	}

	w.scale("team", names[0], 25)
	var ids []string
	for range 25 {
		ids = append(ids, w.create(key, `{"templateID":"`+names[0]+`","metadata":{},"envVars":{}}`))
	}
	most = w.watchBytes()
	var all []mapping.Info
	w.want(http.StatusOK, key, "GET", "/sandboxes", "/sandboxes", "").into(t, &all)
	var paged []mapping.Info
	for next := ""; ; {
		var page []mapping.Info
		a := w.want(http.StatusOK, key, "GET", "/v2/sandboxes?limit=100&nextToken="+url.QueryEscape(next), "/v2/sandboxes", "")
		a.into(t, &page)
		paged = append(paged, page...)
		if next = a.header.Get("X-Next-Token"); next == "" {
			break
		}
	}
	slices.Sort(ids)
	for what, listed := range map[string][]mapping.Info{"the list": all, "the pages": paged} {
		var got []string
		for i := range listed {
			got = append(got, listed[i].SandboxID)
		}
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %q, want %q", what, got, ids)
		}
	}
	if most() > e2b.MaxResponse+1 || most() < e2b.SmallResponse {
		t.Errorf("%d bytes of one answer are read", most())
	}
}

// TestLargeMetadata: however large the metadata of sandboxes is, no response has more than a part of it.
// Pages end early, and are complete together.
func TestLargeMetadata(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	const sandboxes = 8
	w.pool("team", "base", sandboxes)
	patch := []byte(`{"metadata":{"annotations":{"m":"` + strings.Repeat("<", 240_000) + `"}}}`) // each is six bytes in JSON
	var ids []string
	for range sandboxes {
		id := w.create(key, `{"templateID":"base","metadata":{"m":"<"}}`)
		ids = append(ids, id)
		_, err := w.server.Client.AgentsV1alpha1().Sandboxes("team").Patch(w.Context(), w.sandbox(id).Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.want(http.StatusBadRequest, key, "GET", "/sandboxes", "/sandboxes", "")
	var got []string
	pages := 0
	for next := ""; ; pages++ {
		var page []mapping.Info
		a := w.want(http.StatusOK, key, "GET", "/v2/sandboxes?nextToken="+url.QueryEscape(next), "/v2/sandboxes", "")
		if len(a.body) > e2b.MaxListBytes+e2b.MaxResponse {
			t.Errorf("a page has %d bytes", len(a.body))
		}
		a.into(t, &page)
		for i := range page {
			got = append(got, page[i].SandboxID)
		}
		if next = a.header.Get("X-Next-Token"); next == "" {
			break
		}
	}
	slices.Sort(ids)
	slices.Sort(got)
	if !slices.Equal(got, ids) || pages == 0 {
		t.Errorf("%d pages after the first have %q, want %q", pages, got, ids)
	}
}
