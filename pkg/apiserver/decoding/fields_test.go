// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestFindUndecodable(t *testing.T) {
	cases := map[string]struct {
		js   string
		want string // empty: every field can be decoded
	}{
		"good":             {js: `{"metadata":{"name":"a"},"spec":{"claimTimeout":"1m","replicas":3,"labels":{"a":"b"}}}`},
		"null":             {js: `{"spec":{"claimTimeout":null,"labels":null,"env":null,"lifecycle":null}}`},
		"unknown field":    {js: `{"spec":{"frobs":{"a":[1]}},"foo":1}`},
		"wrong case":       {js: `{"spec":{"ClaimTimeout":"abc"}}`},
		"raw JSON":         {js: `{"spec":{"volumeClaimTemplates":[{"a":[1,{"b":null}]}]}}`},
		"no object at all": {js: `[1]`},
		"duration": {
			js:   `{"spec":{"claimTimeout":"abc"}}`,
			want: `spec.claimTimeout: Invalid value: "abc": time: invalid duration "abc"`,
		},
		"duration that is a number": {
			js:   `{"spec":{"ttlAfterCompleted":5}}`,
			want: `spec.ttlAfterCompleted: Invalid value: "5": must be a duration with its unit, as a string: write "5s" for 5 seconds`,
		},
		"duration without its unit": {
			js:   `{"spec":{"claimTimeout":"60"}}`,
			want: `spec.claimTimeout: Invalid value: "60": must be a duration with its unit, as a string: write "60s" for 60 seconds`,
		},
		"negative duration that is a number": {
			js:   `{"spec":{"ttlAfterCompleted":-1}}`,
			want: `spec.ttlAfterCompleted: Invalid value: "-1": must be a duration with its unit, as a string: write "-1s" for -1 seconds`,
		},
		"fraction of a duration": {
			js:   `{"spec":{"waitReadyTimeout":1.5}}`,
			want: `spec.waitReadyTimeout: Invalid value: "1.5": must be a duration with its unit, as a string, such as "60s"`,
		},
		"duration that is an object": {
			js:   `{"spec":{"waitReadyTimeout":{}}}`,
			want: `spec.waitReadyTimeout: Invalid value: "{}": must be a duration with its unit, as a string, such as "60s"`,
		},
		"time": {
			js:   `{"spec":{"shutdownTime":"tomorrow"}}`,
			want: `spec.shutdownTime: Invalid value: "tomorrow": parsing time "tomorrow" as`,
		},
		"duration for a time": {
			js:   `{"spec":{"shutdownTime":"30m"}}`,
			want: `spec.shutdownTime: Invalid value: "30m": must be a time as a string in RFC 3339, such as "2030-01-02T15:04:05Z", and not a duration`,
		},
		"seconds for a time": {
			js:   `{"spec":{"pauseTime":"1800"}}`,
			want: `spec.pauseTime: Invalid value: "1800": must be a time as a string in RFC 3339, such as "2030-01-02T15:04:05Z", and not a duration`,
		},
		"number for a time": {
			js:   `{"spec":{"shutdownTime":1800}}`,
			want: `spec.shutdownTime: Invalid value: "1800": must be a time as a string in RFC 3339, such as "2030-01-02T15:04:05Z"`,
		},
		"time deeper down": {
			js:   `{"spec":{"lifecycle":{"shutdownTime":"2026-13-01T00:00:00Z"}}}`,
			want: `spec.lifecycle.shutdownTime: Invalid value: "2026-13-01T00:00:00Z"`,
		},
		"string for a number": {
			js:   `{"spec":{"replicas":"3"}}`,
			want: `spec.replicas: Invalid value: "3": must be an integer of at most 32 bits`,
		},
		"number too large": {
			js:   `{"spec":{"replicas":10000000000}}`,
			want: `spec.replicas: Invalid value: "10000000000": must be an integer of at most 32 bits`,
		},
		"fraction": {
			js:   `{"spec":{"replicas":1.5}}`,
			want: `spec.replicas: Invalid value: "1.5": must be an integer of at most 32 bits`,
		},
		"string for a bool": {
			js:   `{"spec":{"createOnNoStock":"yes"}}`,
			want: `spec.createOnNoStock: Invalid value: "yes": must be true or false`,
		},
		"value of a map": {
			js:   `{"spec":{"labels":{"a":"x","b":true}}}`,
			want: `spec.labels[b]: Invalid value: "true": must be a string`,
		},
		"element of a list": {
			js:   `{"spec":{"env":[{"name":"a","value":"b"},{"name":"a","value":4711}]}}`,
			want: `spec.env[1].value: Invalid value: must be a string`,
		},
		"all of a variable": {
			js:   `{"spec":{"env":["PASSWORD=4711"]}}`,
			want: `spec.env[0]: Invalid value: must be an object`,
		},
		"a variable for the runtime": {
			js:   `{"spec":{"envVars":{"PASSWORD":4711}}}`,
			want: `spec.envVars[PASSWORD]: Invalid value: must be a string`,
		},
		"list for an object": {
			js:   `{"spec":{"lifecycle":[]}}`,
			want: `spec.lifecycle: Invalid value: "[]": must be an object`,
		},
		"object for a list": {
			js:   `{"spec":{"dynamicVolumesMount":{}}}`,
			want: `spec.dynamicVolumesMount: Invalid value: "{}": must be a list`,
		},
		"variables as an object": {
			js:   `{"spec":{"env":{"PASSWORD":4711}}}`,
			want: `spec.env: Invalid value: must be a list`,
		},
		"string for raw JSON": {
			js:   `{"spec":{"volumeClaimTemplates":[{},"x"]}}`,
			want: `spec.volumeClaimTemplates[1]: Invalid value: "x": must be an object`,
		},
		"list for raw JSON": {
			js:   `{"spec":{"volumeClaimTemplates":[ [{}]]}}`,
			want: `spec.volumeClaimTemplates[0]: Invalid value: "[{}]": must be an object`,
		},
		"quantity": {
			js:   `{"spec":{"inplaceUpdate":{"resources":{"limits":{"cpu":"many"}}}}}`,
			want: `spec.inplaceUpdate.resources.limits[cpu]: Invalid value: "many": quantities must match`,
		},
		"metadata": {
			js:   `{"metadata":{"creationTimestamp":"x"}}`,
			want: `metadata.creationTimestamp: Invalid value: "x": parsing time`,
		},
		"type metadata": {
			js:   `{"kind":5}`,
			want: `kind: Invalid value: "5": must be a string`,
		},
		"long value": {
			js:   `{"spec":{"claimTimeout":"` + strings.Repeat("x", 5000) + `"}}`,
			want: `spec.claimTimeout: Invalid value: "` + strings.Repeat("x", maxShown) + `..."`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := findUndecodable([]byte(tc.js), &v1alpha1.SandboxClaim{})
			switch {
			case err == nil && tc.want != "":
				t.Errorf("no error, want %s", tc.want)
			case err != nil && tc.want == "":
				t.Errorf("unexpected error: %s", err)
			case err != nil && !strings.HasPrefix(err.Error(), tc.want):
				t.Errorf("got  %s\nwant %s", err, tc.want)
			}
		})
	}
}

func TestCheckFields(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	claim := v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim")
	other := claim
	other.Group = "apps"
	unknown := claim
	unknown.Kind = "Frob"
	bad := []byte("spec:\n  claimTimeout: abc\n")

	if err := checkFields(scheme, bad, claim, false); err == nil || !strings.HasPrefix(err.Error(), "spec.claimTimeout: ") {
		t.Errorf("YAML: %v", err)
	}
	if err := checkFields(scheme, bad, other, false); err != nil {
		t.Errorf("another group: %v", err)
	}
	if err := checkFields(scheme, bad, unknown, false); err != nil {
		t.Errorf("a kind that is not served: %v", err)
	}
	if err := checkFields(scheme, []byte("{"), claim, false); err != nil {
		t.Errorf("no YAML: %v", err)
	}
	// A decoder of YAML takes this number for 1000, and one of JSON does not.
	number := []byte(`{"spec":{"replicas":1e3}}`)
	if err := checkFields(scheme, number, claim, true); err == nil || !strings.HasPrefix(err.Error(), "spec.replicas: ") {
		t.Errorf("JSON: %v", err)
	}
	if err := checkFields(scheme, number, claim, false); err != nil {
		t.Errorf("JSON that is decoded as YAML: %v", err)
	}
}
