// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// condition is one of a sandbox's status, true or false.
func condition(kind string, is bool) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: "Test"}
}

// isIn gives a sandbox a status that no controller changes.
func (w *world) isIn(id string, phase v1alpha1.SandboxPhase, conditions ...metav1.Condition) error {
	name := w.sandbox(id).Name
	sandboxes := w.server.Client.AgentsV1alpha1().Sandboxes("team")
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		sb, err := sandboxes.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		sb.Status.Phase = phase
		for _, c := range conditions {
			meta.SetStatusCondition(&sb.Status.Conditions, c)
		}
		_, err = sandboxes.UpdateStatus(w.Context(), sb, metav1.UpdateOptions{})
		return err
	})
}

// TestStatesInBetween: each request reports the observed state of a sandbox and not the one that
// its spec asks for, in each state in which the two differ.
func TestStatesInBetween(t *testing.T) {
	all := newWorld(t)
	const ready, down = v1alpha1.SandboxConditionReady, v1alpha1.SandboxConditionPaused
	states := map[string]struct {
		paused     bool
		phase      v1alpha1.SandboxPhase
		conditions []metav1.Condition
		// timeout is the answer to requests for another timeout.
		timeout int
		// isPaused reports whether a pause is refused.
		isPaused bool
	}{
		"is starting":      {false, v1alpha1.SandboxPending, []metav1.Condition{condition(ready, false)}, http.StatusConflict, false},
		"is to be resumed": {false, v1alpha1.SandboxPaused, []metav1.Condition{condition(ready, false), condition(down, true)}, http.StatusConflict, false},
		"is resuming":      {false, v1alpha1.SandboxResuming, []metav1.Condition{condition(ready, false)}, http.StatusConflict, false},
		"is upgrading":     {false, v1alpha1.SandboxUpgrading, []metav1.Condition{condition(ready, true)}, http.StatusConflict, false},
		"is not ready":     {false, v1alpha1.SandboxRunning, []metav1.Condition{condition(ready, false)}, http.StatusNoContent, false},
		"is to be paused":  {true, v1alpha1.SandboxRunning, []metav1.Condition{condition(ready, true)}, http.StatusConflict, false},
		"is being paused":  {true, v1alpha1.SandboxPaused, []metav1.Condition{condition(ready, false), condition(down, false)}, http.StatusConflict, false},
		"is paused":        {true, v1alpha1.SandboxPaused, []metav1.Condition{condition(ready, false), condition(down, true)}, http.StatusConflict, true},
	}
	requests := []string{"timeout", "refreshes", "connect", "resume", "pause"}
	all.pool("team", "base", int32(len(states)*len(requests)))
	key := all.key("team")
	ids := map[string]string{}
	for name := range states {
		for _, request := range requests {
			ids[name+request] = all.create(key, `{"templateID":"base","timeout":1000}`)
		}
	}
	all.stop()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			one := *all
			one.T = t
			w := &one
			// begin brings a sandbox into the state, and returns its id.
			begin := func(w *world, request string) string {
				w.Helper()
				id := ids[name+request]
				patch := []byte(`{"spec":{"paused":` + strconv.FormatBool(state.paused) + `}}`)
				if _, err := w.server.Client.AgentsV1alpha1().Sandboxes("team").Patch(w.Context(), w.sandbox(id).Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					w.Fatal(err)
				}
				if err := w.isIn(id, state.phase, state.conditions...); err != nil {
					w.Fatal(err)
				}
				if info := w.info(key, id); info.State != mapping.StatePaused {
					w.Errorf("it is told as %s", info.State)
				}
				running := w.want(http.StatusOK, key, "GET", "/v2/sandboxes?state=running", "/v2/sandboxes", "")
				paused := w.want(http.StatusOK, key, "GET", "/v2/sandboxes?state=paused", "/v2/sandboxes", "")
				if strings.Contains(string(running.body), id) || !strings.Contains(string(paused.body), id) {
					w.Errorf("it is listed among those that run, or not among those that are paused")
				}
				return id
			}
			for _, request := range []string{"timeout", "refreshes"} {
				id := begin(w, request)
				w.want(state.timeout, key, "POST", "/sandboxes/"+id+"/"+request, "/sandboxes/{id}/"+request, `{"timeout":2000,"duration":2000}`)
			}
			for _, request := range []string{"connect", "resume"} {
				t.Run(request, func(t *testing.T) {
					two := *w
					two.T = t
					w := &two
					id := begin(w, request)
					if state.phase != v1alpha1.SandboxRunning || !state.paused { // else nothing has happened yet
						w.once("GET", "/sandboxes/"+w.sandbox(id).Name, func() error { return w.isIn(id, v1alpha1.SandboxRunning, condition(ready, true)) })
					}
					w.want(http.StatusCreated, key, "POST", "/sandboxes/"+id+"/"+request, "/sandboxes/{id}/"+request, `{"timeout":60}`)
					if sb := w.sandbox(id); v1alpha1.StateOf(sb, time.Now()) != v1alpha1.StateRunning {
						t.Errorf("it is answered, and the sandbox is %s", sb.Status.Phase)
					}
				})
			}
			t.Run("pause", func(t *testing.T) {
				two := *w
				two.T = t
				w := &two
				id := begin(w, "pause")
				const path = "/sandboxes/{id}/pause"
				if state.isPaused {
					w.want(http.StatusConflict, key, "POST", "/sandboxes/"+id+"/pause", path, ``)
					return
				}
				if !meta.IsStatusConditionTrue(state.conditions, down) { // else it has not been resumed yet
					w.once("GET", "/sandboxes/"+w.sandbox(id).Name, func() error { return w.isIn(id, v1alpha1.SandboxPaused, condition(down, true)) })
				}
				w.want(http.StatusNoContent, key, "POST", "/sandboxes/"+id+"/pause", path, ``)
				if sb := w.sandbox(id); !mapping.IsPaused(sb) {
					t.Errorf("it is answered, and the sandbox is %s", sb.Status.Phase)
				}
			})
		})
	}
}
