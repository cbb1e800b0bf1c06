// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAPI goes through the routes as SDKs of each age do, over one server.
func TestAPI(t *testing.T) {
	w := newWorld(t)
	w.pool("team-a", "base", 12)
	key := w.key("team-a")
	other := w.key("team-b")

	sub := func(name string, test func(w *world)) {
		t.Run(name, func(t *testing.T) {
			one := *w
			one.T = t
			test(&one)
		})
	}

	sub("life", func(w *world) {
		var made mapping.SandboxResponse
		w.want(http.StatusCreated, key, "POST", "/v2/sandboxes", "/v2/sandboxes", `{"templateID":"base","metadata":{"a/b":"c d","label:run":"7"}}`).into(w, &made)
		id := made.SandboxID
		if made.EnvdVersion != "0.4.0" || made.Domain != "box.example" || made.TemplateID != "base" || made.EnvdAccessToken == "" || made.TrafficAccessToken != nil {
			t.Errorf("made %+v", made)
		}
		info := w.info(key, id)
		if info.State != mapping.StateRunning || info.Metadata["a/b"] != "c d" || info.Metadata["label:run"] != "7" || info.EnvdAccessToken != made.EnvdAccessToken {
			t.Errorf("info %+v", info)
		}
		sb := w.sandbox(id)
		if sb.Labels["run"] != "7" || sb.Annotations["a/b"] != "c d" || sb.Annotations[v1alpha1.AnnotationClaimedBy] != v1alpha1.E2BUser("team-a") {
			t.Errorf("sandbox %v %v", sb.Labels, sb.Annotations)
		}
		for _, text := range []string{fmt.Sprint(sb.Annotations), fmt.Sprint(sb.Labels), fmt.Sprint(sb.Spec)} {
			if strings.Contains(text, made.EnvdAccessToken) {
				t.Error("the access token stands on the sandbox")
			}
		}
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/timeout", "/sandboxes/{id}/timeout", `{"timeout":1000}`)
		end := w.info(key, id).EndAt
		w.want(http.StatusOK, key, "POST", "/sandboxes/"+id+"/connect", "/sandboxes/{id}/connect", `{"timeout":10}`)
		w.want(http.StatusOK, key, "POST", "/v2/sandboxes/"+id+"/connect", "/v2/sandboxes/{id}/connect", `{}`)
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/refreshes", "/sandboxes/{id}/refreshes", `{"duration":20}`)
		if now := w.info(key, id).EndAt; now != end {
			t.Errorf("connect moved the end from %s to %s", end, now)
		}
		w.want(http.StatusConflict, key, "POST", "/sandboxes/"+id+"/resume", "/sandboxes/{id}/resume", `{"timeout":60}`)
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", "/sandboxes/{id}/pause", ``)
		if sb := w.sandbox(id); sb.Status.Phase != v1alpha1.SandboxPaused {
			t.Errorf("pause was answered with the phase %s", sb.Status.Phase)
		}
		w.want(http.StatusConflict, key, "POST", "/sandboxes/"+id+"/pause", "/sandboxes/{id}/pause", `{}`)
		w.want(http.StatusConflict, key, "POST", "/sandboxes/"+id+"/timeout", "/sandboxes/{id}/timeout", `{"timeout":60}`)
		if now := w.info(key, id); now.State != mapping.StatePaused {
			t.Errorf("it is %s", now.State)
		}
		w.want(http.StatusCreated, key, "POST", "/v2/sandboxes/"+id+"/connect", "/v2/sandboxes/{id}/connect", `{}`)
		if sb := w.sandbox(id); v1alpha1.StateOf(sb, time.Now()) != v1alpha1.StateRunning {
			t.Errorf("connect was answered with the phase %s", sb.Status.Phase)
		}
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", "/sandboxes/{id}/pause", `{"memory":true}`)
		w.want(http.StatusCreated, key, "POST", "/sandboxes/"+id+"/resume", "/sandboxes/{id}/resume", `{"timeout":60}`)
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
		w.want(http.StatusNotFound, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
		w.want(http.StatusNotFound, key, "GET", "/sandboxes/"+id, "/sandboxes/{id}", "")
		w.want(http.StatusNotFound, key, "POST", "/sandboxes/"+id+"/connect", "/sandboxes/{id}/connect", "{}")
	})

	sub("timeouts of 0", func(w *world) {
		id := w.create(key, `{"templateID":"base","timeout":1000}`)
		end := w.info(key, id).EndAt
		w.want(http.StatusOK, key, "POST", "/v2/sandboxes/"+id+"/connect", "/v2/sandboxes/{id}/connect", `{"timeout":0}`)
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/refreshes", "/sandboxes/{id}/refreshes", `{"duration":0}`)
		if now := w.info(key, id).EndAt; now != end {
			t.Errorf("the end is moved from %s to %s", end, now)
		}
		for _, request := range []string{"connect", "resume"} {
			w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", "/sandboxes/{id}/pause", ``)
			asked := time.Now()
			w.want(http.StatusCreated, key, "POST", "/sandboxes/"+id+"/"+request, "/sandboxes/{id}/"+request, `{"timeout":0}`)
			if end := w.sandbox(id).Spec.ShutdownTime; end.Before(&metav1.Time{Time: asked.Add(299 * time.Second)}) || end.After(asked.Add(time.Hour)) {
				t.Errorf("one that is resumed ends at %s", end)
			}
		}
		for _, request := range []string{"connect", "resume", "timeout"} {
			w.want(http.StatusBadRequest, key, "POST", "/sandboxes/"+id+"/"+request, "/sandboxes/{id}/"+request, `{"timeout":-1}`)
		}
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
	})

	sub("short timeouts", func(w *world) {
		w.pool("team-short", "base", 4)
		key := w.key("team-short")
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			for _, seconds := range []string{"1", "29"} {
				w.want(http.StatusCreated, key, "POST", path, path, `{"templateID":"base","timeout":`+seconds+`}`)
			}
		}
	})

	sub("never", func(w *world) {
		id := w.create(key, `{"templateID":"base","metadata":{"e2b.agents.kruise.io/never-timeout":"true"}}`)
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/timeout", "/sandboxes/{id}/timeout", `{"timeout":60}`)
		if sb := w.sandbox(id); sb.Spec.ShutdownTime != nil || sb.Spec.PauseTime != nil {
			t.Errorf("it ends: %+v", sb.Spec)
		}
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
	})

	sub("pause at the end", func(w *world) {
		id := w.create(key, `{"templateID":"base","timeout":60,"autoPause":true,"autoResume":{"enabled":true}}`)
		if sb := w.sandbox(id); sb.Spec.PauseTime == nil || !sb.Spec.PauseTime.Before(sb.Spec.ShutdownTime) {
			t.Errorf("it is %+v", sb.Spec)
		}
		if info := w.info(key, id); info.Lifecycle == nil || info.Lifecycle.OnTimeout != "pause" || !info.Lifecycle.AutoResume {
			t.Errorf("it is %+v", info)
		}
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/timeout", "/sandboxes/{id}/timeout", `{"timeout":0}`)
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if info := w.info(key, id); info.State != mapping.StatePaused {
				return fmt.Errorf("it is %s", info.State)
			}
			return nil
		})
		w.want(http.StatusCreated, key, "POST", "/sandboxes/"+id+"/connect", "/sandboxes/{id}/connect", `{"timeout":600}`)
		if sb := w.sandbox(id); sb.Spec.PauseTime == nil || time.Until(sb.Spec.PauseTime.Time) < 500*time.Second {
			t.Errorf("it is %+v", sb.Spec)
		}
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
	})

	sub("lists", func(w *world) {
		var ids []string
		for i := range 5 {
			ids = append(ids, w.create(key, `{"templateID":"base","metadata":{"team.io/app":"a b&c=d","n":"`+strconv.Itoa(i)+`"}}`))
		}
		w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+ids[0]+"/pause", "/sandboxes/{id}/pause", ``)
		list := func(path, route string) (found []string, next string) {
			var infos []mapping.Info
			a := w.want(http.StatusOK, key, "GET", path, route, "")
			a.into(w, &infos)
			for _, info := range infos {
				found = append(found, info.SandboxID)
				if info.EnvdAccessToken != "" {
					t.Error("a list tells tokens")
				}
			}
			return found, a.header.Get("X-Next-Token")
		}
		filter := "metadata=team.io%25252Fapp%3Da%252520b%252526c%25253Dd"
		same := func(what string, got, want []string) {
			slices.Sort(got)
			want = slices.Sorted(slices.Values(want))
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		all, _ := list("/v2/sandboxes?"+filter, "/v2/sandboxes")
		same("all", all, ids)
		paused, _ := list("/v2/sandboxes?state=paused&"+filter, "/v2/sandboxes")
		same("paused", paused, ids[:1])
		old, _ := list("/sandboxes?"+filter, "/sandboxes")
		same("v1", old, ids[1:])
		one, _ := list("/kruise/api/v2/sandboxes?n=3", "/v2/sandboxes")
		same("an unknown key is metadata", one, ids[3:4])
		for query, want := range map[string][]string{"": ids, "&state=running": ids[1:], "&n=4": ids[4:]} {
			var paged []string
			next := ""
			for page := 0; page == 0 || next != ""; page++ {
				var some []string
				some, next = list("/v2/sandboxes?limit=2"+query+"&nextToken="+next, "/v2/sandboxes")
				if len(some) > 2 || page > 10 {
					t.Fatalf("page %d has %v", page, some)
				}
				paged = append(paged, some...)
			}
			same("pages"+query, paged, want)
		}
		before := w.lists.Load()
		none, _ := list("/v2/sandboxes?limit=1&n=none", "/v2/sandboxes")
		same("none", none, nil)
		if asked := w.lists.Load() - before; asked > 2 {
			t.Errorf("the cluster was asked %d times for a list that is empty", asked)
		}
		w.want(http.StatusBadRequest, key, "GET", "/v2/sandboxes?nextToken=%21", "/v2/sandboxes", "")
		w.want(http.StatusBadRequest, key, "GET", "/v2/sandboxes?nextToken=YWJj", "/v2/sandboxes", "")
		w.want(http.StatusBadRequest, key, "GET", "/v2/sandboxes?state=dead", "/v2/sandboxes", "")
		var infos []mapping.Info
		w.want(http.StatusOK, other, "GET", "/v2/sandboxes", "/v2/sandboxes", "").into(w, &infos)
		if len(infos) > 0 {
			t.Errorf("another team sees %v", infos)
		}
		for _, id := range ids {
			w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
		}
	})

	sub("another team", func(w *world) {
		id := w.create(key, `{"templateID":"base"}`)
		for _, r := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/timeout"}, {"POST", "/pause"}, {"POST", "/connect"}, {"POST", "/resume"}} {
			w.want(http.StatusNotFound, other, r[0], "/sandboxes/"+id+r[1], "", `{"timeout":60}`)
		}
		w.want(http.StatusBadRequest, other, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base"}`)
		w.want(http.StatusNotFound, other, "GET", "/templates/base", "/templates/{id}", "")
		w.info(key, id)
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
	})

	sub("a sandbox that is not of this API", func(w *world) {
		claim := &v1alpha1.SandboxClaim{}
		claim.Name, claim.Spec.TemplateName = "eabcdefghijklm", "base"
		claims := w.server.Client.AgentsV1alpha1().SandboxClaims("team-a")
		if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.want(http.StatusNotFound, key, "GET", "/sandboxes/team-a--eabcdefghijklm", "/sandboxes/{id}", "")
	})

	sub("retries", func(w *world) {
		const body = `{"templateID":"base","timeout":60}`
		var first, again, third mapping.SandboxResponse
		w.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k1").into(w, &first)
		w.want(http.StatusCreated, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k1").into(w, &again)
		if first.SandboxID != again.SandboxID || first.EnvdAccessToken != again.EnvdAccessToken {
			t.Errorf("%+v, then %+v", first, again)
		}
		w.want(http.StatusConflict, key, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base","metadata":{"x":"y"}}`, "Idempotency-Key", "k1")
		var wait sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			wait.Go(func() {
				var made mapping.SandboxResponse
				answer := w.ask(key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k2")
				if answer.code != http.StatusCreated {
					t.Errorf("one of eight at once: %d %s", answer.code, answer.body)
					return
				}
				answer.into(w, &made)
				ids[i] = made.SandboxID
			})
		}
		wait.Wait()
		if got := slices.Compact(ids); len(got) != 1 || got[0] == "" {
			t.Errorf("eight at once made %v", got)
		}
		_, mine, err := w.keys.Issue(t.Context(), apikeys.Request{Team: "team-a", Name: "second"})
		if err != nil {
			t.Fatal(err)
		}
		w.want(http.StatusCreated, mine, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k1").into(w, &third)
		if third.SandboxID == first.SandboxID {
			t.Error("another key of the team gets the sandbox by the Idempotency-Key alone")
		}
		w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+first.SandboxID, "/sandboxes/{id}", "")
		w.want(http.StatusConflict, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "k1")
		w.want(http.StatusBadRequest, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", strings.Repeat("k", 257))
		w.want(http.StatusBadRequest, key, "POST", "/sandboxes", "/sandboxes", body, "Idempotency-Key", "a", "Idempotency-Key", "b")
		for _, id := range []string{ids[0], third.SandboxID} {
			w.want(http.StatusNoContent, key, "DELETE", "/sandboxes/"+id, "/sandboxes/{id}", "")
		}
	})

	sub("templates, teams", func(w *world) {
		var templates []mapping.Template
		w.want(http.StatusOK, key, "GET", "/templates", "/templates", "").into(w, &templates)
		if len(templates) != 1 || templates[0].TemplateID != "base" {
			t.Errorf("%+v", templates)
		}
		w.want(http.StatusOK, key, "GET", "/templates/base", "/templates/{id}", "")
		w.want(http.StatusNotFound, key, "GET", "/templates/a%2Fb", "/templates/{id}", "")
		const alias = "/templates/aliases/{alias}"
		if a := w.want(http.StatusOK, key, "GET", "/templates/aliases/base", alias, ""); string(a.body) != `{"templateID":"base","public":true}` {
			t.Errorf("%s", a.body)
		}
		template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}
		template.Spec.Template = builders.PodTemplateOf("image")
		if _, err := w.server.Client.AgentsV1alpha1().SandboxTemplates("team-a").Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.want(http.StatusOK, key, "GET", "/templates/aliases/alone", alias, "")
		for _, none := range []string{"none", "base:v1", "a%2Fb", "tags"} {
			w.want(http.StatusNotFound, key, "GET", "/templates/aliases/"+none, alias, "")
		}
		w.want(http.StatusNotFound, other, "GET", "/templates/aliases/base", alias, "")
		w.want(http.StatusForbidden, key, "DELETE", "/templates/base", "/templates/{id}", "")
		if a := w.want(http.StatusOK, key, "GET", "/teams", "/teams", ""); string(a.body) != `[{"teamID":"team-a","name":"team-a","isDefault":true}]` {
			t.Errorf("%s", a.body)
		}
	})

	sub("keys", func(w *world) {
		var made struct{ ID, Key string }
		w.want(http.StatusCreated, key, "POST", "/api-keys", "/api-keys", `{"name":"ci"}`).into(w, &made)
		w.want(http.StatusOK, made.Key, "GET", "/teams", "/teams", "")
		a := w.want(http.StatusOK, key, "GET", "/api-keys", "/api-keys", "")
		if strings.Contains(string(a.body), made.Key) || !strings.Contains(string(a.body), made.ID) {
			t.Errorf("%s", a.body)
		}
		var hidden struct{ ID, Key string }
		w.want(http.StatusCreated, made.Key, "POST", "/api-keys", "/api-keys", `{"name":"hidden"}`).into(w, &hidden)
		w.want(http.StatusForbidden, hidden.Key, "DELETE", "/api-keys/"+made.ID, "/api-keys/{id}", "")
		w.want(http.StatusNotFound, other, "DELETE", "/api-keys/"+made.ID, "/api-keys/{id}", "")
		w.want(http.StatusNoContent, key, "DELETE", "/api-keys/"+made.ID, "/api-keys/{id}", "")
		for _, gone := range []string{made.Key, hidden.Key} {
			w.want(http.StatusUnauthorized, gone, "GET", "/teams", "/teams", "")
		}
		w.want(http.StatusBadRequest, key, "POST", "/api-keys", "/api-keys", `{"name":""}`)
		w.want(http.StatusBadRequest, key, "POST", "/api-keys", "/api-keys", `{"name":"a","limits":{}}`)
		w.want(http.StatusForbidden, key, "POST", "/api-keys", "/api-keys", `{"name":"a","teamName":"team-b"}`)
	})

	sub("what is wrong is told in JSON", func(w *world) {
		for _, tc := range []struct {
			code                         int
			key, method, path, body, say string
		}{
			{401, "", "GET", "/sandboxes", "", "X-API-Key"},
			{401, "e2b_00", "GET", "/sandboxes", "", "not known"},
			{401, "", "GET", "/nowhere", "", "X-API-Key"},
			{404, key, "GET", "/nowhere", "", "/nowhere"},
			{404, key, "GET", "/kruise/api/nowhere", "", "/nowhere"},
			{404, key, "GET", "/sandboxes//x/../y", "", "no path"},
			{405, key, "PUT", "/sandboxes", "", "PUT"},
			{404, key, "GET", "/sandboxes/nobody", "", "nobody"},
			{404, key, "GET", "/sandboxes/team-a--eaaaaaaaaaaaaa", "", "team-a--eaaaaaaaaaaaaa"},
			{404, key, "GET", "/sandboxes/" + strings.Repeat("x", 3000), "", "xxx..."},
			{400, key, "POST", "/sandboxes", `{`, "JSON"},
			{400, key, "POST", "/sandboxes", ``, "templateID"},
			{400, key, "POST", "/sandboxes", `{"templateID":"none"}`, "Template or Checkpoint not found"},
			{400, key, "POST", "/sandboxes", `{"templateID":"base","timeout":0}`, "timeout"},
			{400, key, "POST", "/sandboxes", `{"templateID":"base","metadata":{"label:x":"not a label!"}}`, "label"},
			{413, key, "POST", "/sandboxes", `{"templateID":"` + strings.Repeat("x", 1<<20) + `"}`, "longer"},
			{501, key, "POST", "/sandboxes", `{"templateID":"base","mcp":{"a":{}}}`, "mcp"},
			{501, key, "POST", "/sandboxes/x/snapshots", ``, "snapshot"},
			{501, key, "POST", "/kruise/api/sandboxes/x/fork", ``, "fork"},
			{501, key, "PUT", "/sandboxes/x/network", ``, "network"},
			{501, key, "GET", "/sandboxes/x/logs", ``, "logs"},
			{501, key, "GET", "/volumes", ``, "volumes"},
			{501, key, "GET", "/sandboxes/x/metrics", ``, "metrics"},
		} {
			a := w.ask(tc.key, tc.method, tc.path, "", tc.body)
			if a.code != tc.code || !strings.Contains(string(a.body), tc.say) || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s %.80s: %d %s", tc.method, tc.path, tc.body, a.code, a.body)
			}
		}
		w.want(http.StatusOK, "", "GET", "/health", "/health", "")
	})
}

// TestEmptyPool: 429 with whole seconds, and a claim that waits gets what comes.
func TestEmptyPool(t *testing.T) {
	w := newWorld(t)
	w.pool("team-a", "base", 3)
	key := w.key("team-a")
	sets := w.server.Client.AgentsV1alpha1().SandboxSets("team-a")
	_, err := sets.Patch(t.Context(), "base", "application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var full *answer
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if full = w.ask(key, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base"}`); full.code != http.StatusTooManyRequests {
			return fmt.Errorf("%d %s", full.code, full.body)
		}
		return nil
	})
	if n, err := strconv.Atoi(full.header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q", full.header.Get("Retry-After"))
	}
	id := w.create(key, `{"templateID":"base","metadata":{"e2b.agents.kruise.io/create-on-no-stock":"true"}}`)
	w.info(key, id)
	late := w.want(http.StatusTooManyRequests, key, "POST", "/sandboxes", "/sandboxes", `{"templateID":"base","metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"1"}}`)
	if late.header.Get("Retry-After") == "" {
		t.Error("a claim that ran out of time has no Retry-After")
	}
	list, err := w.server.Client.AgentsV1alpha1().SandboxClaims("team-a").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil && len(list.Items[i].Status.Sandboxes) == 0 && list.Items[i].Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
			t.Errorf("claim %s is left", list.Items[i].Name)
		}
	}
}

// TestClaimGoesWithItsSandbox, by itself, regardless of who has deleted that.
func TestClaimGoesWithItsSandbox(t *testing.T) {
	w := newWorld(t)
	w.pool("team-a", "base", 1)
	id := w.create(w.key("team-a"), `{"templateID":"base"}`)
	_, name, _ := v1alpha1.SplitE2BSandboxID(id)
	sb := w.sandbox(id)
	if err := w.server.Client.AgentsV1alpha1().Sandboxes("team-a").Delete(t.Context(), sb.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := w.server.Client.AgentsV1alpha1().SandboxClaims("team-a").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the claim is there"), err)
	})
}

// TestRates: a key that sends too many requests gets a Retry-After, and a team does not
// take all slots.
func TestRates(t *testing.T) {
	w := newWorld(t, func(o *e2b.Options) {
		o.Allow = func(c apikeys.Caller) (bool, time.Duration) { return c.Team != "greedy", 1500 * time.Millisecond }
		o.CanCreateKeys = false
	})
	a := w.want(http.StatusTooManyRequests, w.key("greedy"), "GET", "/v2/sandboxes", "", "")
	if a.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	w.want(http.StatusForbidden, w.key("team-a"), "POST", "/api-keys", "/api-keys", `{"name":"x"}`)
}

// TestLongRequests: the time that a body has to come is not that of the answer, and a body
// that does not come is not waited for. The server speaks HTTP/1.1, as the SDKs of node do.
func TestLongRequests(t *testing.T) {
	const patience = 3 * time.Second
	w := newWorld(t)
	w.api.SetReadTimeout(patience)
	w.pool("team-a", "late", 0)
	key := w.key("team-a")

	made := make(chan *answer, 1)
	go func() {
		defer close(made)
		made <- w.ask(key, "POST", "/sandboxes", "", `{"templateID":"late","metadata":{"e2b.agents.kruise.io/claim-timeout-seconds":"600"}}`)
	}()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /sandboxes HTTP/1.1\r\nHost: a\r\nX-API-Key: %s\r\nContent-Length: 10\r\n\r\n{", key); err != nil {
		t.Fatal(err)
	}
	answered, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(answered.Body)
	if err != nil || answered.StatusCode != http.StatusRequestTimeout || strings.Contains(string(text), "127.0.0.1") {
		t.Errorf("a body that does not come is answered %d %s, %v", answered.StatusCode, text, err)
	}
	select {
	case a := <-made:
		t.Fatalf("a create that waits is answered %+v", a)
	case <-time.After(patience):
	}
	sets := w.server.Client.AgentsV1alpha1().SandboxSets("team-a")
	if _, err := sets.Patch(t.Context(), "late", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if a := <-made; a == nil || a.code != http.StatusCreated {
		t.Errorf("the create is answered %+v", a)
	}
}
