// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func sandbox(change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	sb := &v1alpha1.Sandbox{}
	sb.Namespace, sb.Name, sb.UID = "team", "box-1", "u1"
	sb.ResourceVersion = "7"
	sb.Labels = map[string]string{
		v1alpha1.LabelClaimName: "eabcdefghijklm", v1alpha1.LabelSandboxID: "team--eabcdefghijklm", "run": "7", "pool": "p",
		v1alpha1.LabelAllowInternetAccess: "false",
	}
	sb.Annotations = map[string]string{
		v1alpha1.AnnotationClaimedBy: v1alpha1.E2BUser("team"), v1alpha1.AnnotationClaimTimestamp: "2026-03-04T05:06:07Z",
		v1alpha1.AnnotationE2BTemplateID: "base", "team.io/app": "a b", "other": "o", v1alpha1.AnnotationE2BTimeout: "300",
		v1alpha1.AnnotationUpdatedMetadataInClaim: `{"labels":["run","agents.kruise.io/allow-internet-access"],"annotations":["team.io/app","gone","e2b.agents.kruise.io/timeout"]}`,
	}
	sb.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[
{"name":"a","resources":{"requests":{"cpu":"500m","memory":"1Gi"},"limits":{"memory":"1500Mi"}}},
{"name":"b","resources":{"limits":{"cpu":"1","ephemeral-storage":"1G"}}}]}}`)}
	sb.Status.Phase, sb.Status.PodInfo.PodIP = v1alpha1.SandboxRunning, "10.1.2.3"
	sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue}}
	if change != nil {
		change(sb)
	}
	return sb
}

func at(d time.Duration) *metav1.Time { t := metav1.NewTime(now.Add(d)); return &t }

// TestInfoOf: dates are valid whatever is set, and parts of a CPU count.
func TestInfoOf(t *testing.T) {
	info := InfoOf(sandbox(func(sb *v1alpha1.Sandbox) {
		sb.Spec.PauseTime = at(time.Minute)
		sb.Annotations[v1alpha1.AnnotationE2BAutoPause] = "true"
		sb.Annotations[annotationReturnIP] = "true"
	}), "0.4.0", "example.com", now)
	no := false
	want := Info{
		TemplateID: "base", SandboxID: "team--eabcdefghijklm", StartedAt: "2026-03-04T05:06:07Z", EndAt: "2026-03-04T05:07:07Z",
		EnvdVersion: "0.4.0", Domain: "example.com", CPUCount: 2, MemoryMB: 1500, DiskSizeMB: 954, State: StateRunning,
		Metadata: map[string]string{
			"team.io/app": "a b", "label:run": "7",
			"e2b.agents.kruise.io/sandbox-resource": "team/box-1", "e2b.agents.kruise.io/sandbox-ip": "10.1.2.3",
		},
		AllowInternetAccess: &no, Lifecycle: &Lifecycle{OnTimeout: "pause"},
	}
	if d := cmp.Diff(want, info); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
	endless := InfoOf(sandbox(func(sb *v1alpha1.Sandbox) { delete(sb.Annotations, v1alpha1.AnnotationClaimTimestamp) }), "0.4.0", "", now)
	for _, date := range []string{endless.StartedAt, endless.EndAt} {
		if _, err := time.Parse(time.RFC3339, date); err != nil {
			t.Error(err)
		}
	}
}

// TestQuery: metadata is encoded three times, as the SDKs do it.
func TestQuery(t *testing.T) {
	// The example of the wire, and what JavaScript makes of awkward values.
	raw := "metadata=team.io%25252Fapp%3Da%252520b%252526c%25253Dd&state=running,paused&limit=7&nextToken=x&template=base"
	q, err := ReadQuery(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := &Query{Metadata: map[string]string{"team.io/app": "a b&c=d"}, States: []E2BState{StatePaused, StateRunning}, TemplateID: "base", Limit: 7, Next: "x"}
	if d := cmp.Diff(want, q); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
	odd := map[string]string{"a": "1+1=2 & more%", "b/c": "ü/?#", "d": ""}
	once := url.Values{}
	for key, value := range odd {
		once.Set(url.QueryEscape(key), url.QueryEscape(value))
	}
	q, err = ReadQuery(url.Values{"metadata": {once.Encode()}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(odd, q.Metadata); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
	for _, bad := range []string{"state=dead", "limit=0", "limit=101", "limit=x", "metadata=%2525zz%25", "limit=1&limit=2", "order=desc"} {
		if _, err := ReadQuery(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestSelects by metadata, state and template.
func TestSelects(t *testing.T) {
	info := InfoOf(sandbox(nil), "0.4.0", "", now)
	for raw, want := range map[string]bool{
		"": true, "state=running": true, "state=paused": false, "template=base": true, "template=other": false,
		"metadata=team.io%25252Fapp%3Da%252520b": true, "metadata=team.io%25252Fapp%3Da": false, "other=o": false, "label:run=7": true,
	} {
		q, err := ReadQuery(raw)
		if err != nil {
			t.Fatal(err)
		}
		if q.Selects(&info) != want {
			t.Errorf("%s: %v", raw, !want)
		}
	}
}

// TestChanges: one write each, of the sandbox that was seen.
func TestChanges(t *testing.T) {
	timed := func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = at(time.Minute) }
	pausing := func(sb *v1alpha1.Sandbox) {
		sb.Spec.PauseTime = at(time.Minute)
		sb.Annotations[v1alpha1.AnnotationE2BAutoPause] = "true"
		sb.Annotations[v1alpha1.AnnotationReservePausedSandboxDuration] = "1h"
	}
	hour := now.Add(time.Hour)
	for name, tc := range map[string]struct {
		change *Change
		spec   string
	}{
		"timeout":                 {SetTimeout(sandbox(timed), hour), `{"pauseTime":null,"shutdownTime":"2026-03-04T06:06:07Z"}`},
		"shorter":                 {SetTimeout(sandbox(timed), now), `{"pauseTime":null,"shutdownTime":"2026-03-04T05:06:07Z"}`},
		"timeout, pausing":        {SetTimeout(sandbox(pausing), hour), `{"pauseTime":"2026-03-04T06:06:07Z","shutdownTime":"2026-03-04T07:06:07Z"}`},
		"timeout, never":          {SetTimeout(sandbox(nil), hour), `{}`},
		"extend":                  {Extend(sandbox(timed), hour), `{"pauseTime":null,"shutdownTime":"2026-03-04T06:06:07Z"}`},
		"extend by nothing":       {Extend(sandbox(timed), now), `{}`},
		"extend, never":           {Extend(sandbox(nil), hour), `{}`},
		"pause":                   {Pause(sandbox(timed), "", now), `{"paused":true,"shutdownTime":"2126-02-08T05:06:07Z"}`},
		"pause, kept for an hour": {Pause(sandbox(pausing), "", now), `{"paused":true,"pauseTime":"2026-03-04T06:06:07Z","shutdownTime":"2026-03-04T06:06:07Z"}`},
		"pause, kept as asked":    {Pause(sandbox(pausing), "2h", now), `{"paused":true,"pauseTime":"2026-03-04T07:06:07Z","shutdownTime":"2026-03-04T07:06:07Z"}`},
		"pause, never":            {Pause(sandbox(nil), "", now), `{"paused":true}`},
		"resume":                  {Resume(sandbox(timed), hour), `{"paused":false,"pauseTime":null,"shutdownTime":"2026-03-04T06:06:07Z"}`},
		"resume, pausing":         {Resume(sandbox(pausing), hour), `{"paused":false,"pauseTime":"2026-03-04T06:06:07Z","shutdownTime":"2026-03-04T07:06:07Z"}`},
		"resume, never":           {Resume(sandbox(nil), hour), `{"paused":false}`},
	} {
		patch, err := tc.change.Patch()
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(patch, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"metadata":{"uid":"u1","resourceVersion":"7"},"spec":`+tc.spec+`}`), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: want -, got +:\n%s", name, d)
		}
		if tc.change.IsEmpty() != (tc.spec == "{}") {
			t.Errorf("%s: empty: %v", name, tc.change.IsEmpty())
		}
	}
}
