// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestLatePool: the timeout of a sandbox begins when its create is answered, where that
// takes long.
func TestLatePool(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(o *e2b.Options) { o.Clock = clk })
	const waits = `"metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"300"}`
	for name, tc := range map[string]struct {
		body string
		took time.Duration
		// anew is how late the timeout begins.
		anew time.Duration
	}{
		"short":     {body: `"timeout":900`, took: time.Second},
		"long":      {body: `"timeout":900`, took: 10 * time.Second, anew: 10 * time.Second},
		"autopause": {body: `"timeout":900,"autoPause":true`, took: 10 * time.Second, anew: 10 * time.Second},
	} {
		team := "team-" + name
		w.pool(team, "base", 0)
		key, began := w.key(team), clk.Now()
		answers := w.askLater(key, `{"templateID":"base",`+waits+`,`+tc.body+`}`)
		w.awaitClaim(team)
		clk.Step(tc.took)
		w.scale(team, "base", 1)
		made := <-answers
		if made.code != http.StatusCreated {
			t.Errorf("%s: %d %s", name, made.code, made.body)
			continue
		}
		var told mapping.Made
		made.into(t, &told)
		info := w.info(key, told.SandboxID)
		ends, err := time.Parse(time.RFC3339, info.EndAt)
		if err != nil {
			t.Fatal(err)
		}
		if want := began.Add(tc.anew + 900*time.Second).Truncate(time.Second); !ends.Equal(want) {
			t.Errorf("%s: it ends at %s, want %s", name, ends, want)
		}
	}
}

// askLater creates a sandbox while the test goes on.
func (w *world) askLater(key, body string) <-chan *answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/sandboxes", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	answers := make(chan *answer, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			answers <- &answer{body: []byte(err.Error())}
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			text = []byte(err.Error())
		}
		answers <- &answer{resp.StatusCode, resp.Header, text}
	}()
	return answers
}

// awaitClaim waits until a team without claims has one.
func (w *world) awaitClaim(team string) {
	w.Helper()
	expect.Eventually(w.Context(), w, func(ctx context.Context) error {
		list, err := w.server.Client.AgentsV1alpha1().SandboxClaims(team).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d claims", len(list.Items))
		}
		return err
	})
}

// scale lets a pool have so many sandboxes.
func (w *world) scale(team, name string, replicas int32) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := w.server.Client.AgentsV1alpha1().SandboxSets(team).Patch(w.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}
