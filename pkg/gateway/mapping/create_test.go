// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var (
	now    = time.Date(2026, 3, 4, 5, 6, 7, 800, time.UTC)
	limits = Limits{MaxTimeout: 3600}
)

func planOf(t *testing.T, body string) (*CreatePlan, error) {
	t.Helper()
	var b CreateRequest
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		t.Fatal(err)
	}
	return NewCreatePlan(&b, "k1", limits, now)
}

// TestNewCreatePlan: bodies of SDKs, old and new, and the claims that they become.
func TestNewCreatePlan(t *testing.T) {
	for name, tc := range map[string]struct{ body, spec string }{
		"the least that 2.51 sends": {`{"templateID":"base"}`, `
shutdownTime: "2026-03-04T05:11:07Z"
annotations:
  e2b.agents.kruise.io/timeout: "300"`},
		"all that 2.50 sends": {`{"templateID":"base","metadata":{"team.io/app":"a b&c"},"envVars":{"A":"b"},"timeout":60,"secure":true,"allow_internet_access":false}`, `
shutdownTime: "2026-03-04T05:07:07Z"
envVars: {A: b}
labels: {agents.kruise.io/allow-internet-access: "false"}
annotations:
  team.io/app: a b&c
  e2b.agents.kruise.io/timeout: "60"`},
		"pause at the end, resume by traffic": {`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"network":{"allowPublicTraffic":false}}`, `
pauseTime: "2026-03-04T05:11:07Z"
shutdownTime: "2126-02-08T05:11:07Z"
annotations:
  e2b.agents.kruise.io/timeout: "300"
  e2b.agents.kruise.io/auto-pause: "true"
  e2b.agents.kruise.io/auto-resume: "true"
  e2b.agents.kruise.io/private-traffic: "true"`},
		"pause at the end, kept for a day": {`{"templateID":"base","autoPause":true,"metadata":{"e2b.agents.kruise.io/reserve-paused-sandbox-duration":"24h"}}`, `
pauseTime: "2026-03-04T05:11:07Z"
shutdownTime: "2026-03-05T05:11:07Z"
annotations:
  e2b.agents.kruise.io/timeout: "300"
  e2b.agents.kruise.io/auto-pause: "true"
  agents.kruise.io/reserve-paused-sandbox-duration: 24h`},
		"never": {`{"templateID":"base","timeout":5,"metadata":{"e2b.agents.kruise.io/never-timeout":"true"}}`, ``},
		"labels": {`{"templateID":"base","metadata":{"label:team":"x"}}`, `
shutdownTime: "2026-03-04T05:11:07Z"
labels: {team: x}
annotations: {e2b.agents.kruise.io/timeout: "300"}`},
		"waits, and a cold start": {`{"templateID":"base","metadata":{"e2b.agents.kruise.io/create-on-no-stock":"true","e2b.agents.kruise.io/claim-timeout-seconds":"20","e2b.agents.kruise.io/wait-ready-timeout-seconds":"10"}}`, `
shutdownTime: "2026-03-04T05:11:07Z"
onShortage: Wait
createOnNoStock: true
claimTimeout: 20s
waitReadyTimeout: 10s
annotations: {e2b.agents.kruise.io/timeout: "300"}`},
		"a cold start that may take long": {`{"templateID":"base","metadata":{"e2b.agents.kruise.io/create-on-no-stock":"true","e2b.agents.kruise.io/wait-ready-timeout-seconds":"900"}}`, `
shutdownTime: "2026-03-04T05:11:07Z"
onShortage: Wait
createOnNoStock: true
claimTimeout: 15m0s
waitReadyTimeout: 15m0s
annotations: {e2b.agents.kruise.io/timeout: "300"}`},
		"changes that may take long": {`{"templateID":"base","timeout":600,"metadata":{"e2b.agents.kruise.io/image":"i:2","e2b.agents.kruise.io/wait-ready-timeout-seconds":"300"}}`, `
shutdownTime: "2026-03-04T05:16:07Z"
inplaceUpdate: {image: "i:2"}
claimTimeout: 5m0s
waitReadyTimeout: 5m0s
annotations: {e2b.agents.kruise.io/timeout: "600"}`},
		"changes in place, and volumes": {`{"templateID":"base","volumeMounts":[{"name":"pv","path":"/a"}],"metadata":{
"e2b.agents.kruise.io/image":"i:2","e2b.agents.kruise.io/cpu-request":"500m","e2b.agents.kruise.io/cpu-limit":"1",
"e2b.agents.kruise.io/csi-volume-name":"pv2","e2b.agents.kruise.io/csi-mount-point":"/b","e2b.agents.kruise.io/csi-subpath":"s",
"e2b.agents.kruise.io/csi-volume-config":"[{\"pvName\":\"pv3\",\"mountPath\":\"/c\",\"readOnly\":true}]",
"e2b.agents.kruise.io/reserve-failed-sandbox":"forever","e2b.agents.kruise.io/reserve-paused-sandbox-duration":"24h",
"e2b.agents.kruise.io/skip-init-runtime":"true","e2b.agents.kruise.io/return-sandbox-ip":"true"}}`, `
shutdownTime: "2026-03-04T05:11:07Z"
inplaceUpdate: {image: "i:2", resources: {requests: {cpu: 500m}, limits: {cpu: "1"}}}
dynamicVolumesMount:
- {pvName: pv, mountPath: /a}
- {pvName: pv3, mountPath: /c, readOnly: true}
- {pvName: pv2, mountPath: /b, subPath: s}
skipInitRuntime: true
reserveFailedSandbox: true
annotations:
  e2b.agents.kruise.io/timeout: "300"
  e2b.agents.kruise.io/return-sandbox-ip: "true"
  agents.kruise.io/reserve-paused-sandbox-duration: 24h`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planOf(t, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{
				"templateName": "base", "replicas": 1.0, "onShortage": "Fail", "createOnNoStock": false, "reclaimPolicy": "Retain",
				"lifecycle": map[string]any{"ttlSecondsAfterFinished": 30.0, "shutdownPolicy": "Delete"},
			}
			labels := map[string]any{v1alpha1.LabelAllowInternetAccess: "true"}
			annotations := map[string]any{
				v1alpha1.AnnotationE2BTemplateID: "base", v1alpha1.AnnotationE2BKeyID: "k1",
				v1alpha1.AnnotationReservePausedSandboxDuration: "forever",
			}
			more := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.spec), &more); err != nil {
				t.Fatal(err)
			}
			for key, value := range more {
				switch key {
				case "labels":
					merge(labels, value)
				case "annotations":
					merge(annotations, value)
				default:
					want[key] = value
				}
			}
			want["labels"], want["annotations"] = labels, annotations
			text, err := json.Marshal(got.Claim.Spec)
			if err != nil {
				t.Fatal(err)
			}
			have := map[string]any{}
			if err := json.Unmarshal(text, &have); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, have); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

func merge(into map[string]any, from any) {
	maps.Copy(into, from.(map[string]any))
}

// TestNewOrderRefuses what it cannot carry out, by a message that names it.
func TestNewOrderRefuses(t *testing.T) {
	meta := func(key, value string) string {
		text, _ := json.Marshal(map[string]any{"templateID": "base", "metadata": map[string]string{key: value}})
		return string(text)
	}
	const e = "e2b.agents.kruise.io/"
	for body, says := range map[string]string{
		`{}`:                                   "templateID",
		`{"templateID":"base","timeout":0}`:    "timeout 0",
		`{"templateID":"base","timeout":-1}`:   "timeout -1",
		`{"templateID":"base","timeout":3601}`: "3600",
		`{"templateID":"base","autoResume":{"enabled":true}}`: "autoResume needs autoPause",
		`{"templateID":"base","volumeMounts":[{"name":"a"}]}`: "volumeMounts",
		meta("a b", "c"):                                 `"a b"`,
		meta("agents.kruise.io/owner", "c"):              "agents.kruise.io/owner",
		meta("label:sandlot.io/x", "c"):                  "sandlot.io/x",
		meta(e+"unknown", "c"):                           "unknown",
		meta(e+"never-timeout", "yes"):                   "never-timeout",
		meta(e+"claim-timeout-seconds", "0"):             "claim-timeout-seconds",
		meta(e+"cpu-request", "much"):                    "cpu-request",
		meta(e+"cpu-limit", "1e-2147483647"):             "an exponent of at most two digits",
		meta(e+"csi-volume-name", "pv"):                  "csi-mount-point",
		meta(e+"csi-volume-config", "{"):                 "csi-volume-config",
		meta(e+"reserve-failed-sandbox-for", "1h"):       "reserve-failed-sandbox-for",
		meta(e+"reserve-paused-sandbox-duration", ""):    "reserve-paused-sandbox-duration",
		meta(e+"reserve-paused-sandbox-duration", "1ms"): "at least 1s",
		meta(e+"claim-timeout-seconds", "901"):           "900",
		meta(e+"sandbox-name", "x"):                      "sandbox-name",
		`{"templateID":"base","envVars":{"A":"b"},"metadata":{"e2b.agents.kruise.io/skip-init-runtime":"true"}}`:                    "envVars",
		`{"templateID":"base","network":{"allowPublicTraffic":false},"metadata":{"e2b.agents.kruise.io/skip-init-runtime":"true"}}`: "allowPublicTraffic",
	} {
		_, err := planOf(t, body)
		var bad *InvalidError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, should name %s", body, err, says)
		}
	}
	for _, body := range []string{
		`{"templateID":"base","mcp":{"a":{}}}`, `{"templateID":"base","iam":{"role":"x"}}`,
		`{"templateID":"base","network":{"allowOut":["1.2.3.4"]}}`, `{"templateID":"base","network":{"maskRequestHost":"x"}}`,
	} {
		_, err := planOf(t, body)
		if _, ok := errors.AsType[*UnservedError](err); !ok {
			t.Errorf("%s: got %v", body, err)
		}
	}
	if _, err := planOf(t, `{"templateID":"base","mcp":{},"iam":null,"network":{}}`); err != nil {
		t.Errorf("what is empty is refused: %v", err)
	}
}

// TestMayWait: a create that waits for a sandbox, or for changes of one.
func TestMayWait(t *testing.T) {
	for metadata, want := range map[string]bool{
		"": false, `"e2b.agents.kruise.io/claim-timeout-seconds":"9"`: true, `"e2b.agents.kruise.io/create-on-no-stock":"true"`: true, `"e2b.agents.kruise.io/image":"i"`: true,
	} {
		if o, err := planOf(t, `{"templateID":"base","metadata":{`+metadata+`}}`); err != nil || o.MayWait != want {
			t.Errorf("{%s}: %v, %v", metadata, o, err)
		}
	}
}

// TestMayOutlastTimeout: a create that waits, or whose timeout is short. Without a timeout it is neither.
func TestMayOutlastTimeout(t *testing.T) {
	const wait, never = `"e2b.agents.kruise.io/create-on-no-stock":"true"`, `"e2b.agents.kruise.io/never-timeout":"true"`
	const ready = `"e2b.agents.kruise.io/image":"i:2","e2b.agents.kruise.io/wait-ready-timeout-seconds":"300"`
	for body, want := range map[string]bool{
		`{"templateID":"base","timeout":61}`:                                        false,
		`{"templateID":"base","timeout":60}`:                                        true,
		`{"templateID":"base","timeout":3600,"metadata":{` + wait + `}}`:            true,
		`{"templateID":"base","timeout":300,"metadata":{` + ready + `}}`:            true,
		`{"templateID":"base","timeout":301,"metadata":{` + ready + `}}`:            false,
		`{"templateID":"base","timeout":5,"metadata":{` + never + `}}`:              false,
		`{"templateID":"base","timeout":5,"metadata":{` + never + `,` + wait + `}}`: false,
	} {
		if o, err := planOf(t, body); err != nil || o.MayOutlastTimeout != want {
			t.Errorf("%s: got %+v, %v; want %t", body, o, err, want)
		}
	}
}
