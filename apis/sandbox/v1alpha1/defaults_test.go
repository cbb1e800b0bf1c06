// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func defaulted(t *testing.T, obj runtime.Object, text string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	scheme.Default(obj)
}

func TestDefaultsOfClaim(t *testing.T) {
	yes, no := true, false
	one := int32(1)
	// What an empty claim becomes; the cases change it.
	base := func(change func(*SandboxClaimSpec)) SandboxClaimSpec {
		spec := SandboxClaimSpec{
			Replicas:          &one,
			Allocation:        AllocationBestEffort,
			OnShortage:        ShortageWait,
			CreateOnNoStock:   &yes,
			WarmPool:          WarmPoolDefault,
			ReclaimPolicy:     ReclaimRetain,
			ClaimTimeout:      &metav1.Duration{Duration: time.Minute},
			TTLAfterCompleted: &metav1.Duration{Duration: time.Hour},
			WaitReadyTimeout:  &metav1.Duration{Duration: 30 * time.Second},
		}
		if change != nil {
			change(&spec)
		}
		return spec
	}
	tests := map[string]struct {
		spec string
		want SandboxClaimSpec
	}{
		"empty": {`{}`, base(nil)},
		"as a Go client of OpenKruise Agents sends it": {
			`{"createOnNoStock":false,"dynamicVolumesMount":null}`,
			base(func(s *SandboxClaimSpec) { s.CreateOnNoStock = &no }),
		},
		"onShortage Fail means warm stock": {
			`{"onShortage":"Fail"}`,
			base(func(s *SandboxClaimSpec) { s.OnShortage, s.CreateOnNoStock = ShortageFail, &no }),
		},
		"onShortage Fail, and fresh ones asked for": {
			`{"onShortage":"Fail","createOnNoStock":true}`,
			base(func(s *SandboxClaimSpec) { s.OnShortage = ShortageFail }),
		},
		"onShortage Fail, and no warm ones wanted": {
			`{"onShortage":"Fail","warmPool":"none"}`,
			base(func(s *SandboxClaimSpec) { s.OnShortage, s.WarmPool = ShortageFail, WarmPoolNone }),
		},
		"the annotation of the E2B front end means no warm ones": {
			`{"annotations":{"e2b.agents.kruise.io/prewarm-strategy":"none"}}`,
			base(func(s *SandboxClaimSpec) {
				s.WarmPool, s.Annotations = WarmPoolNone, map[string]string{AnnotationE2BPrewarmStrategy: "none"}
			}),
		},
		"env needs fresh ones": {
			`{"onShortage":"Fail","env":[{"name":"A","value":"b"}]}`,
			base(func(s *SandboxClaimSpec) {
				s.OnShortage, s.WarmPool, s.Env = ShortageFail, WarmPoolNone, []SandboxClaimEnvVar{{Name: "A", Value: "b"}}
			}),
		},
		"volumes need fresh ones": {
			`{"volumeClaimTemplates":[{}]}`,
			base(func(s *SandboxClaimSpec) {
				s.WarmPool, s.VolumeClaimTemplates = WarmPoolNone, []runtime.RawExtension{{Raw: []byte("{}")}}
			}),
		},
		"what cannot be is said, and not mended": {
			`{"warmPool":"default","env":[{"name":"A","value":"b"}]}`,
			base(func(s *SandboxClaimSpec) { s.Env = []SandboxClaimEnvVar{{Name: "A", Value: "b"}} }),
		},
		"what the spec says itself wins": {
			`{"warmPool":"default","annotations":{"e2b.agents.kruise.io/prewarm-strategy":"none"}}`,
			base(func(s *SandboxClaimSpec) { s.Annotations = map[string]string{AnnotationE2BPrewarmStrategy: "none"} }),
		},
		"zero and negative values are values": {
			`{"replicas":0,"claimTimeout":"0s","ttlAfterCompleted":"-1s","waitReadyTimeout":"0s"}`,
			base(func(s *SandboxClaimSpec) {
				zero := int32(0)
				s.Replicas = &zero
				s.ClaimTimeout.Duration = 0
				s.TTLAfterCompleted.Duration = -time.Second
				s.WaitReadyTimeout.Duration = 0
			}),
		},
		"lifecycle": {
			`{"lifecycle":{}}`,
			base(func(s *SandboxClaimSpec) {
				s.Lifecycle = &SandboxClaimLifecycle{ShutdownPolicy: ShutdownRetain}
				s.TTLAfterCompleted.Duration = -time.Second
			}),
		},
		"lifecycle beside a TTL": {
			`{"lifecycle":{},"ttlAfterCompleted":"5m"}`,
			base(func(s *SandboxClaimSpec) {
				s.Lifecycle = &SandboxClaimLifecycle{ShutdownPolicy: ShutdownRetain}
				s.TTLAfterCompleted.Duration = 5 * time.Minute
			}),
		},
		"nothing to default": {
			`{"allocation":"AllOrNothing","warmPool":"none","reclaimPolicy":"Delete","lifecycle":{"shutdownPolicy":"Delete"}}`,
			base(func(s *SandboxClaimSpec) {
				s.Allocation, s.WarmPool, s.ReclaimPolicy = AllocationAllOrNothing, WarmPoolNone, ReclaimDelete
				s.Lifecycle = &SandboxClaimLifecycle{ShutdownPolicy: ShutdownDelete}
				s.TTLAfterCompleted.Duration = -time.Second
			}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			claim := &SandboxClaim{}
			defaulted(t, claim, `{"spec":`+tc.spec+`}`)
			if diff := cmp.Diff(tc.want, claim.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// The annotation may be the claim's own, too.
func TestPrewarmStrategyOfClaim(t *testing.T) {
	for value, want := range map[string]string{"none": WarmPoolNone, "": WarmPoolDefault} {
		claim := &SandboxClaim{}
		defaulted(t, claim, `{"metadata":{"annotations":{"e2b.agents.kruise.io/prewarm-strategy":"`+value+`"}}}`)
		if claim.Spec.WarmPool != want || !*claim.Spec.CreateOnNoStock {
			t.Errorf("%q: warmPool is %q, createOnNoStock %t", value, claim.Spec.WarmPool, *claim.Spec.CreateOnNoStock)
		}
	}
}

func TestDefaultsOfSet(t *testing.T) {
	tests := map[string]struct {
		spec string
		want intstr.IntOrString
	}{
		"empty":  {`{}`, intstr.FromString("20%")},
		"set":    {`{"updateStrategy":{"maxUnavailable":0}}`, intstr.FromInt32(0)},
		"others": {`{"scaleStrategy":{"maxUnavailable":"50%"}}`, intstr.FromString("20%")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := &SandboxSet{}
			defaulted(t, set, `{"spec":`+tc.spec+`}`)
			if got := set.Spec.UpdateStrategy.MaxUnavailable; got == nil || *got != tc.want {
				t.Errorf("updateStrategy.maxUnavailable is %v, want %v", got, tc.want)
			}
			if set.Spec.Replicas != nil {
				t.Error("replicas has no default: a set without them is a mistake")
			}
		})
	}
}

func TestDefaultsOfSandbox(t *testing.T) {
	sandbox := &Sandbox{}
	defaulted(t, sandbox, `{"spec":{"lifecycle":{"preUpgrade":{},"postUpgrade":{"timeoutSeconds":5}}}}`)
	if got := sandbox.Spec.Lifecycle.PreUpgrade.TimeoutSeconds; got != 60 {
		t.Errorf("preUpgrade.timeoutSeconds is %d, want 60", got)
	}
	if got := sandbox.Spec.Lifecycle.PostUpgrade.TimeoutSeconds; got != 5 {
		t.Errorf("postUpgrade.timeoutSeconds is %d, want 5", got)
	}
}
