// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// watchBytes returns how many bytes of one answer of the API server have been read at most.
func (w *world) watchBytes() (most func() int) {
	var mu sync.Mutex
	largest := 0
	read := func(_ context.Context, bytes int) {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, bytes)
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
	if most() > e2b.MaxAnswer+1 {
		t.Errorf("%d bytes of one answer are read", most())
	}

	sets := w.server.Client.AgentsV1alpha1().SandboxSets("team")
	scale := []byte(`{"spec":{"replicas":25}}`)
	if _, err := sets.Patch(t.Context(), names[0], "application/merge-patch+json", scale, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.filled("team", names[0], 25)
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
	if most() > e2b.MaxAnswer+1 || most() < e2b.SmallAnswer {
		t.Errorf("%d bytes of one answer are read", most())
	}
}

// TestLargeAnswersAtOnce: few large answers are read at a time, and they do not hold up small
// ones. All are answered in the end.
func TestLargeAnswersAtOnce(t *testing.T) {
	w := newWorld(t)
	key := w.key("team")
	name := w.largeSets("team", 1)[0]
	w.pool("team", "small", 0)

	var mu sync.Mutex
	began, large := map[context.Context]bool{}, map[context.Context]bool{}
	changed := sync.NewCond(&mu)
	goOn := make(chan struct{})
	read := func(ctx context.Context, bytes int) {
		mu.Lock()
		began[ctx] = true
		isLarge := bytes > e2b.SmallAnswer
		if isLarge {
			large[ctx] = true
		}
		changed.Broadcast()
		mu.Unlock()
		if isLarge {
			<-goOn
		}
	}
	w.read.Store(&read)
	const requests = e2b.LargeAtOnce + 8
	var asking sync.WaitGroup
	for range requests {
		asking.Go(func() { w.ask(key, "GET", "/templates/"+name, "/templates/{id}", "") })
	}
	mu.Lock()
	for len(began) < requests || len(large) < e2b.LargeAtOnce {
		changed.Wait()
	}
	mu.Unlock()
	w.want(http.StatusOK, key, "GET", "/templates/small", "/templates/{id}", "")
	mu.Lock()
	if len(large) != e2b.LargeAtOnce {
		t.Errorf("%d large answers are read at a time, want %d", len(large), e2b.LargeAtOnce)
	}
	mu.Unlock()
	close(goOn)
	asking.Wait()
	if len(large) != requests {
		t.Errorf("%d large answers were read, want %d", len(large), requests)
	}
}
