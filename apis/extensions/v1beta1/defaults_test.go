// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// defaulted returns what an object of this JSON is with its defaults.
func defaulted[T any](t *testing.T, text string) *T {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := json.Unmarshal([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	scheme.Default(any(object).(runtime.Object))
	return object
}

// toJSON is a spec as clients see it.
func toJSON(t *testing.T, spec any) string {
	t.Helper()
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDefaultsOfClaim(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"by pool":                              {`{"warmPoolRef":{"name":"p"}}`, `{"warmPoolRef":{"name":"p"}}`},
		"by template":                          {`{"sandboxTemplateRef":{"name":"t"}}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"default"}`},
		"by template, none":                    {`{"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}`},
		"by template, a pool":                  {`{"sandboxTemplateRef":{"name":"t"},"warmpool":"p"}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"p"}`},
		"by template, with env":                {`{"sandboxTemplateRef":{"name":"t"},"env":[{"name":"A","value":"b"}]}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"default","env":[{"name":"A","value":"b"}]}`},
		"both":                                 {`{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"}}`, `{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"}}`},
		"bound, of the older form":             {`{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}`, `{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":"t"},"warmpool":"none"}`},
		"a typed client of the older form":     {`{"warmPoolRef":{"name":""},"sandboxTemplateRef":{"name":"t"}}`, `{"sandboxTemplateRef":{"name":"t"},"warmpool":"default"}`},
		"a typed client of the current form":   {`{"warmPoolRef":{"name":"p"},"sandboxTemplateRef":{"name":""}}`, `{"warmPoolRef":{"name":"p"}}`},
		"warmpool without a template":          {`{"warmPoolRef":{"name":"p"},"warmpool":"none"}`, `{"warmPoolRef":{"name":"p"}}`},
		"no names":                             {`{"warmPoolRef":{"name":""}}`, `{"warmPoolRef":{"name":""}}`},
		"nothing":                              {`{}`, `{}`},
		"no lifecycle gets none":               {`{"warmPoolRef":{"name":"p"},"lifecycle":null}`, `{"warmPoolRef":{"name":"p"}}`},
		"a lifecycle retains":                  {`{"warmPoolRef":{"name":"p"},"lifecycle":{}}`, `{"warmPoolRef":{"name":"p"},"lifecycle":{"shutdownPolicy":"Retain"}}`},
		"a lifecycle that says what it does":   {`{"warmPoolRef":{"name":"p"},"lifecycle":{"shutdownPolicy":"Delete"}}`, `{"warmPoolRef":{"name":"p"},"lifecycle":{"shutdownPolicy":"Delete"}}`},
		"a time to live of nothing is not one": {`{"warmPoolRef":{"name":"p"},"lifecycle":{"ttlSecondsAfterFinished":0}}`, `{"warmPoolRef":{"name":"p"},"lifecycle":{"ttlSecondsAfterFinished":0,"shutdownPolicy":"Retain"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			claim := defaulted[SandboxClaim](t, `{"spec":`+tc.spec+`}`)
			if diff := cmp.Diff(tc.want, toJSON(t, claim.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDefaultsOfTemplate(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"empty": {`{}`, `{"networkPolicyManagement":"Managed","envVarsInjectionPolicy":"Disallowed","volumeClaimTemplatesPolicy":"Disallowed"}`},
		"full": {
			`{"service":false,"networkPolicy":{},"networkPolicyManagement":"Unmanaged","envVarsInjectionPolicy":"Allowed","volumeClaimTemplatesPolicy":"Overrides"}`,
			`{"service":false,"networkPolicy":{},"networkPolicyManagement":"Unmanaged","envVarsInjectionPolicy":"Allowed","volumeClaimTemplatesPolicy":"Overrides"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := defaulted[SandboxTemplate](t, `{"spec":`+tc.spec+`}`)
			if diff := cmp.Diff(tc.want, toJSON(t, template.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDefaultsOfWarmPool(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"empty": {`{"sandboxTemplateRef":{"name":"t"}}`, `{"replicas":1,"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"OnReplenish"}}`},
		"full": {
			`{"replicas":0,"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"Recreate"}}`,
			`{"replicas":0,"sandboxTemplateRef":{"name":"t"},"updateStrategy":{"type":"Recreate"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := defaulted[SandboxWarmPool](t, `{"spec":`+tc.spec+`}`)
			if diff := cmp.Diff(tc.want, toJSON(t, pool.Spec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
