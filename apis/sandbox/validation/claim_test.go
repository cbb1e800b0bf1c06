// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claim is a valid claim as a user writes it, with defaults.
func claim(change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	c := &v1alpha1.SandboxClaim{ObjectMeta: meta("one"), Spec: v1alpha1.SandboxClaimSpec{TemplateName: "pool"}}
	v1alpha1.SetObjectDefaults_SandboxClaim(c)
	if change != nil {
		change(c)
	}
	return c
}

func TestValidateSandboxClaim(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   []string
	}{
		"minimal":              {},
		"dots in the name":     {change: func(c *v1alpha1.SandboxClaim) { c.Name = "a.b" }},
		"63 characters":        {change: func(c *v1alpha1.SandboxClaim) { c.Name = longName[:63] }},
		"shutdown in the past": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = ptr.To(metav1.Unix(1, 0)) }},
		"negative ttl":         {change: func(c *v1alpha1.SandboxClaim) { c.Spec.TTLAfterCompleted.Duration = -time.Second }},
		"one second":           {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout.Duration = time.Second }},
		"most replicas":        {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To(int32(maxReplicas)) }},
		"runtimes have no effect": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}}
		}},
		"most atomic replicas": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
			c.Spec.Replicas = ptr.To(int32(maxAtomicReplicas))
		}},
		"other policies": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.OnShortage = v1alpha1.ShortageFail
			c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
			c.Spec.CreateOnNoStock = ptr.To(false)
			c.Spec.ReserveFailedSandbox = true
			c.Spec.SkipInitRuntime = true
		}},
		"empty containers of fields to come": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.DynamicVolumesMount = []v1alpha1.CSIMountConfig{}
			c.Spec.EnvVars = map[string]string{}
			c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{}
		}},

		"paused and later deleted": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.PauseTime, c.Spec.ShutdownTime = ptr.To(metav1.Unix(1, 0)), ptr.To(metav1.Unix(2, 0))
		}},
		"paused only": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.PauseTime = ptr.To(metav1.Unix(1, 0)) }},
		"paused when deleted": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.PauseTime, c.Spec.ShutdownTime = ptr.To(metav1.Unix(2, 0)), ptr.To(metav1.Unix(2, 0))
			},
			want: []string{`spec.pauseTime: Invalid value: "1970-01-01T00:00:02Z": must be before shutdownTime`},
		},

		"bad name": {
			change: func(c *v1alpha1.SandboxClaim) { c.Name = "No_Name" },
			want:   []string{"metadata.name: Invalid value: \"No_Name\": "},
		},
		"long name": {
			change: func(c *v1alpha1.SandboxClaim) { c.Name = longName },
			want: []string{"metadata.name: Invalid value: \"" + longName +
				"\": must be no more than 63 characters, because it is also the value of a label on sandboxes"},
		},
		"no namespace": {
			change: func(c *v1alpha1.SandboxClaim) { c.Namespace = "" },
			want:   []string{"metadata.namespace: Required value"},
		},
		"no source": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "" },
			want:   []string{"spec.templateName: Required value: name of the SandboxSet to claim from, unless sandboxTemplateRef is set"},
		},
		"bad source": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "a/b" },
			want:   []string{"spec.templateName: Invalid value: \"a/b\": "},
		},
		"two sources": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "template"}
			},
			want: []string{
				"spec.sandboxTemplateRef: Invalid value: \"template\": may not be set together with templateName",
			},
		},
		"empty template reference": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.TemplateName = ""
				c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{}
			},
			want: []string{"spec.sandboxTemplateRef.name: Required value"},
		},
		"template reference": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.TemplateName = ""
				c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "template"}
			},
		},
		"no warm ones": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = v1alpha1.WarmPoolNone }},
		"one pool":     {change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "small" }},
		"bad pool": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "No_Name" },
			want:   []string{"spec.warmPool: Invalid value: \"No_Name\": "},
		},
		"neither warm nor fresh ones": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.WarmPool, c.Spec.CreateOnNoStock = v1alpha1.WarmPoolNone, ptr.To(false)
			},
			want: []string{"spec.createOnNoStock: Invalid value: false: must be true with warmPool none"},
		},
		"strategies that there are not": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Annotations = map[string]string{"e2b.agents.kruise.io/prewarm-strategy": "some"}
				c.Spec.Annotations = c.Annotations
			},
			want: []string{
				"metadata.annotations[e2b.agents.kruise.io/prewarm-strategy]: Unsupported value: \"some\": supported values: \"none\"",
				"spec.annotations[e2b.agents.kruise.io/prewarm-strategy]: Unsupported value: \"some\": supported values: \"none\"",
			},
		},
		"no replicas": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = nil },
			want:   []string{"spec.replicas: Required value"},
		},
		"0 replicas": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To(int32(0)) },
			want:   []string{"spec.replicas: Invalid value: 0: must be at least 1"},
		},
		"-1 replicas": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To(int32(-1)) },
			want:   []string{"spec.replicas: Invalid value: -1: must be at least 1"},
		},
		"1e9 replicas": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To(int32(1e9)) },
			want:   []string{"spec.replicas: Invalid value: 1000000000: must be at most 10000"},
		},
		"too many for one transaction": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Allocation = v1alpha1.AllocationAllOrNothing
				c.Spec.Replicas = ptr.To(int32(128))
			},
			want: []string{"spec.replicas: Invalid value: 128: must be at most 127 with allocation AllOrNothing, which binds all in one transaction"},
		},
		"short claimTimeout": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout.Duration = time.Second - 1 },
			want:   []string{"spec.claimTimeout: Invalid value: \"999.999999ms\": claimTimeout must be at least 1 second"},
		},
		"negative waitReadyTimeout": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.WaitReadyTimeout.Duration = -time.Minute },
			want:   []string{"spec.waitReadyTimeout: Invalid value: \"-1m0s\": waitReadyTimeout must be at least 1 second"},
		},
		"unknown policies": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Allocation, c.Spec.OnShortage, c.Spec.ReclaimPolicy = "Some", "Panic", "Recycle"
			},
			want: []string{
				"spec.allocation: Unsupported value: \"Some\": supported values: \"BestEffort\", \"AllOrNothing\"",
				"spec.onShortage: Unsupported value: \"Panic\": supported values: \"Wait\", \"Fail\"",
				"spec.reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Retain\", \"Delete\"",
			},
		},
		"runtime without a name": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Runtimes = []v1alpha1.RuntimeConfig{{}} },
			want:   []string{"spec.runtimes[0].name: Required value"},
		},
		"very many runtimes": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Runtimes = make([]v1alpha1.RuntimeConfig, 65) },
			want:   []string{"spec.runtimes: Too many: 65: must have at most 64 items"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandboxClaim(claim(tc.change), DefaultClaimLimits()), tc.want)
		})
	}
}

func TestValidateSandboxClaimUpdate(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   []string
	}{
		"nothing": {},
		"what may change": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.TemplateName = ""
			c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "template"}
			c.Spec.WarmPool = "small"
			c.Spec.TTLAfterCompleted.Duration = time.Hour
			c.Spec.ShutdownTime = ptr.To(metav1.Unix(1, 0))
			c.Labels = map[string]string{"a": "b"}
		}},
		"replicas": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Replicas = ptr.To(int32(2)) },
			want:   []string{"spec.replicas: Invalid value: 2: replicas is immutable"},
		},
		"uid": {
			change: func(c *v1alpha1.SandboxClaim) { c.UID = "other" },
			want:   []string{"metadata.uid: Invalid value: \"other\": field is immutable"},
		},
		"create rules hold": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout.Duration = 0 },
			want:   []string{"spec.claimTimeout: Invalid value: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := claim(nil)
			expect(t, ValidateSandboxClaimUpdate(claim(tc.change), old, DefaultClaimLimits()), tc.want)
		})
	}
}

// TestValidateChoices: where sandboxes come from may be changed while some are to come.
func TestValidateChoices(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   []string
	}{
		"nothing of it": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.TTLAfterCompleted.Duration = time.Hour
			c.Spec.Labels = map[string]string{"a": "b"}
		}},
		"templateName": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "other" },
			want:   []string{"spec.templateName: Forbidden: is immutable once the claim is Completed"},
		},
		"sandboxTemplateRef": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.TemplateName, c.Spec.SandboxTemplateRef = "", &v1alpha1.SandboxClaimTemplateRef{Name: "template"}
			},
			want: []string{"spec.templateName: Forbidden: is immutable", "spec.sandboxTemplateRef: Forbidden: is immutable"},
		},
		"warmPool": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "small" },
			want:   []string{"spec.warmPool: Forbidden: is immutable"},
		},
		"what to do on a shortage": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.OnShortage, c.Spec.CreateOnNoStock = v1alpha1.ShortageFail, ptr.To(!*c.Spec.CreateOnNoStock)
			},
			want: []string{"spec.createOnNoStock: Forbidden: is immutable", "spec.onShortage: Forbidden: is immutable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for phase, want := range map[v1alpha1.SandboxClaimPhase][]string{
				v1alpha1.SandboxClaimPhaseClaiming: nil, v1alpha1.SandboxClaimPhaseCompleted: tc.want,
			} {
				old, edited := claim(nil), claim(tc.change)
				old.Status.Phase, edited.Status.Phase = phase, phase
				expect(t, ValidateSandboxClaimUpdate(edited, old, DefaultClaimLimits()), want)
			}
		})
	}
}

func TestValidateSandboxClaimStatusUpdate(t *testing.T) {
	tests := map[string]struct {
		status v1alpha1.SandboxClaimStatus
		want   []string
	}{
		"empty":             {},
		"reset by a client": {status: v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseClaiming}},
		"complete": {status: v1alpha1.SandboxClaimStatus{
			ObservedGeneration: 1,
			Phase:              v1alpha1.SandboxClaimPhaseCompleted,
			ClaimedReplicas:    1,
			Sandboxes:          []v1alpha1.ClaimedSandbox{{Name: "a", PodIPs: []string{"10.0.0.1"}}, {Name: "b"}},
			Conditions:         []metav1.Condition{condition()},
		}},
		"phase": {
			status: v1alpha1.SandboxClaimStatus{Phase: "Pending"},
			want:   []string{"status.phase: Unsupported value: \"Pending\": supported values: \"Claiming\", \"Completed\""},
		},
		"negative numbers": {
			status: v1alpha1.SandboxClaimStatus{ClaimedReplicas: -1, ObservedGeneration: -1},
			want: []string{
				"status.claimedReplicas: Invalid value: -1: must be greater than or equal to 0",
				"status.observedGeneration: Invalid value: -1: must be greater than or equal to 0",
			},
		},
		"conditions": {
			status: v1alpha1.SandboxClaimStatus{Conditions: []metav1.Condition{condition(), condition(), {Type: "Ready"}}},
			want: []string{
				"status.conditions[1]",
				"status.conditions[2].status: ",
				"status.conditions[2].lastTransitionTime: Required value",
				"status.conditions[2].reason: Required value",
			},
		},
		"sandboxes": {
			status: v1alpha1.SandboxClaimStatus{Sandboxes: []v1alpha1.ClaimedSandbox{{Name: "a"}, {}, {Name: "a"}}},
			want: []string{
				"status.sandboxes[1].name: Required value",
				"status.sandboxes[2].name: Duplicate value: \"a\"",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := claim(func(c *v1alpha1.SandboxClaim) { c.Status = tc.status })
			expect(t, ValidateSandboxClaimStatusUpdate(changed, claim(nil)), tc.want)
		})
	}
}
