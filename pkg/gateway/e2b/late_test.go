// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestLatePool: the timeout of a sandbox that was waited for begins when its create is
// answered, also where it would be over by then.
func TestLatePool(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(o *e2b.Options) { o.Clock = clk })
	const waits = `"metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"300"}`
	for name, tc := range map[string]struct {
		body string
		key  []string
	}{
		"delete": {body: `"timeout":60`},
		"pause":  {body: `"timeout":60,"autoPause":true`},
		"again":  {body: `"timeout":60`, key: []string{"Idempotency-Key", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			one, team := *w, "team-"+name
			one.T = t
			w := &one
			w.pool(team, "base", 0)
			clk.SetTime(time.Now().Add(-10 * time.Minute)) // the clock of the cluster is ahead by what it takes
			key, body := w.key(team), `{"templateID":"base",`+waits+`,`+tc.body+`}`
			answers := w.askLater(key, body, tc.key...)
			w.awaitClaim(team)
			clk.Step(10 * time.Minute)
			w.stock(team)
			made := <-answers
			if made.code != http.StatusCreated {
				t.Fatalf("%d %s", made.code, made.body)
			}
			var first mapping.SandboxResponse
			made.into(t, &first)
			want := clk.Now().Add(time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339)
			if ends := w.info(key, first.SandboxID).EndAt; ends != want {
				t.Errorf("it ends at %s, want %s", ends, want)
			}
			if tc.key == nil {
				return
			}
			// A retry gets the same, and prolongs nothing.
			clk.Step(10 * time.Second)
			var again mapping.SandboxResponse
			w.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body, tc.key...).into(t, &again)
			if ends := w.info(key, again.SandboxID).EndAt; again.SandboxID != first.SandboxID || ends != want {
				t.Errorf("the retry got %s, which ends at %s", again.SandboxID, ends)
			}
		})
	}
}

// TestLifeShorterThanPreparation: a claim whose sandboxes would be at their end as soon as
// they were prepared takes one, and not the whole pool.
func TestLifeShorterThanPreparation(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now().Add(-time.Hour))
	w := newWorld(t, func(o *e2b.Options) { o.Clock = clk })
	w.pool("team", "base", 4)
	names := func() []string {
		list, err := w.server.Client.AgentsV1alpha1().Sandboxes("team").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for i := range list.Items {
			all = append(all, list.Items[i].Name)
		}
		return all
	}
	before := names()
	a := w.ask(w.key("team"), "POST", "/sandboxes", "/sandboxes", `{"templateID":"base","metadata":{"e2b.agents.kruise.io/image":"other"}}`)
	if a.code != http.StatusInternalServerError || a.header.Get("Retry-After") != "" { // which no SDK repeats
		t.Errorf("%d %s", a.code, a.body)
	}
	after, gone := names(), 0
	for _, name := range before {
		if !slices.Contains(after, name) {
			gone++
		}
	}
	if gone > 1 {
		t.Errorf("%d of %d sandboxes are gone", gone, len(before))
	}
}

// stepping is a clock that goes on by a step each time that it is looked at.
type stepping struct {
	clock.PassiveClock
	step, looked atomic.Int64
}

// Now implements clock.PassiveClock.
func (s *stepping) Now() time.Time {
	return s.PassiveClock.Now().Add(time.Duration(s.looked.Add(1) * s.step.Load()))
}

// TestSlowCreate: so does that of one that is there, and took long for another reason: more than 2 s, and more
// than a twentieth of the timeout.
func TestSlowCreate(t *testing.T) {
	clk := &stepping{PassiveClock: clocktesting.NewFakePassiveClock(time.Now())}
	w := newWorld(t, func(o *e2b.Options) { o.Clock = clk })
	w.pool("team", "slow", 3)
	key := w.key("team")
	for _, tc := range []struct {
		step     time.Duration
		body     string
		restarts bool
	}{
		{0, `{"templateID":"slow"}`, false},
		{3 * time.Second, `{"templateID":"slow","timeout":3600}`, false},
		{20 * time.Second, `{"templateID":"slow"}`, true},
	} {
		step := tc.step
		clk.step.Store(int64(step))
		id := w.create(key, tc.body)
		_, name, _ := v1alpha1.SplitE2BSandboxID(id)
		claim, err := w.server.Client.AgentsV1alpha1().SandboxClaims("team").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		asked, ends := claim.Spec.ShutdownTime.Time, w.sandbox(id).Spec.ShutdownTime.Time
		if tc.restarts && ends.Before(asked.Add(step)) || !tc.restarts && !ends.Equal(asked) {
			t.Errorf("with steps of %s it ends at %s, and when it was asked for that was %s", step, ends, asked)
		}
	}
}

// TestSlowCreateOfOneThatEnds: a create whose sandbox ends before its timeout is restarted says so, and with
// the code of a create.
func TestSlowCreateOfOneThatEnds(t *testing.T) {
	w := newWorld(t)
	w.pool("team", "base", 2)
	key := w.key("team")
	sandboxes := w.server.Client.AgentsV1alpha1().Sandboxes("team")
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{"plain": {nil, http.StatusServiceUnavailable}, "with a key": {[]string{"Idempotency-Key", "1"}, http.StatusConflict}} {
		var ended atomic.Bool
		before := func(r *http.Request) error {
			sandbox, isRead := strings.CutPrefix(r.URL.Path, "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxes/")
			if !isRead || r.Method != http.MethodGet || ended.Swap(true) {
				return nil
			}
			return sandboxes.Delete(r.Context(), sandbox, metav1.DeleteOptions{})
		}
		w.before.Store(&before)
		a := w.ask(key, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base","timeout":60}`, tc.headers...)
		if a.code != tc.want || !ended.Load() {
			t.Errorf("%s: %d %s", name, a.code, a.body)
		}
	}
}

// askLater creates a sandbox while the test continues.
func (w *world) askLater(key, body string, headers ...string) <-chan *answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/sandboxes", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
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

// stock lets the pool of a team have a sandbox.
func (w *world) stock(team string) {
	w.Helper()
	patch := []byte(`{"spec":{"replicas":1}}`)
	_, err := w.server.Client.AgentsV1alpha1().SandboxSets(team).Patch(w.Context(), "base", "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}
