// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func sandbox(t *testing.T, change func(*v1alpha1.Sandbox)) *v1alpha1.Sandbox {
	t.Helper()
	s := &v1alpha1.Sandbox{ObjectMeta: meta("pool-abcde"), Spec: v1alpha1.SandboxSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: rawTemplate(t)},
	}}
	if change != nil {
		change(s)
	}
	return s
}

func TestValidateSandbox(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   []string
	}{
		"minimal":  {},
		"shutdown": {change: func(s *v1alpha1.Sandbox) { s.Spec.ShutdownTime = ptr.To(metav1.Unix(1, 0)) }},
		"paused":   {change: func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }},
		"pause":    {change: func(s *v1alpha1.Sandbox) { s.Spec.PauseTime = ptr.To(metav1.Unix(1, 0)) }},
		"strategy": {change: func(s *v1alpha1.Sandbox) { s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{} }},
		"retained": {change: func(s *v1alpha1.Sandbox) {
			s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "1h"}
		}},
		"retained for ever": {change: func(s *v1alpha1.Sandbox) {
			s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "forever"}
		}},
		"retained for nothing": {
			change: func(s *v1alpha1.Sandbox) {
				s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "0s"}
			},
			want: []string{"metadata.annotations[agents.kruise.io/reserve-paused-sandbox-duration]: Invalid value: \"0s\": must be \"forever\" or a positive duration"},
		},
		"retained for a while": {
			change: func(s *v1alpha1.Sandbox) {
				s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "a while"}
			},
			want: []string{"metadata.annotations[agents.kruise.io/reserve-paused-sandbox-duration]: Invalid value: \"a while\": must be"},
		},
		"hibernate": {
			change: func(s *v1alpha1.Sandbox) {
				s.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyHibernate}
			},
			want: []string{"spec.pauseStrategy.type: " + yet + "pausing by Hibernate; use Stop"},
		},
		"no template": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Template = nil },
			want:   []string{"spec.template: Required value: template is required"},
		},
		"bad template": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Template = rawJSON("[]") },
			want:   []string{"spec.template: Invalid value: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := sandbox(t, tc.change)
			expect(t, ValidateSandbox(changed), tc.want)
			expect(t, ValidateSandboxUpdate(changed, sandbox(t, nil)), tc.want)
		})
	}
	expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { s.Name = "a_b" })),
		[]string{"metadata.name: Invalid value: "})
}

// What was stored before a rule came stays changeable.
func TestValidateSandboxUpdateLeavesOldRetentionAlone(t *testing.T) {
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Annotations = map[string]string{v1alpha1.AnnotationReservePausedSandboxDuration: "a while"}
	})
	changed := old.DeepCopy()
	changed.Spec.Paused = true
	expect(t, ValidateSandboxUpdate(changed, old), nil)
}

// A claim relies on its sandboxes staying its own, and their users may change all
// else.
func TestValidateSandboxUpdateOfTheBinding(t *testing.T) {
	const claimed = " is immutable while the sandbox is bound to a claim"
	bound := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Labels = map[string]string{v1alpha1.LabelClaimName: "one", v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue, "mine": "a"}
		s.Annotations = map[string]string{v1alpha1.AnnotationLock: "x", v1alpha1.AnnotationOwner: "uid"}
	})
	annotation := func(key string) string { return "metadata.annotations[" + key + "]: Forbidden:" + claimed }
	label := func(key string) string { return "metadata.labels[" + key + "]: Forbidden:" + claimed }
	tests := map[string]struct {
		old, change func(*v1alpha1.Sandbox)
		want        []string
	}{
		"user's own": {change: func(s *v1alpha1.Sandbox) {
			s.Labels["mine"], s.Annotations["mine"] = "b", "b"
			s.Spec.Paused, s.Spec.ShutdownTime = true, ptr.To(metav1.Unix(1, 0))
		}},
		"no metadata": {
			change: func(s *v1alpha1.Sandbox) { s.Labels, s.Annotations = nil, nil },
			want: []string{
				annotation(v1alpha1.AnnotationLock), annotation(v1alpha1.AnnotationOwner),
				label(v1alpha1.LabelClaimName), label(v1alpha1.LabelSandboxClaimed),
			},
		},
		"another claim": {
			change: func(s *v1alpha1.Sandbox) {
				s.Labels[v1alpha1.LabelClaimName], s.Annotations[v1alpha1.AnnotationOwner] = "two", "other"
			},
			want: []string{annotation(v1alpha1.AnnotationOwner), label(v1alpha1.LabelClaimName)},
		},
		"unlocked while it is deleted": {
			old:    func(s *v1alpha1.Sandbox) { s.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) },
			change: func(s *v1alpha1.Sandbox) { delete(s.Annotations, v1alpha1.AnnotationLock) },
			want:   []string{annotation(v1alpha1.AnnotationLock)},
		},
		"locked, but of no claim": {
			old:    func(s *v1alpha1.Sandbox) { delete(s.Annotations, v1alpha1.AnnotationOwner) },
			change: func(s *v1alpha1.Sandbox) { delete(s.Annotations, v1alpha1.AnnotationLock) },
		},
		"to be scaled down": {
			old:    func(s *v1alpha1.Sandbox) { s.Annotations[v1alpha1.AnnotationOwner] = v1alpha1.OwnerScaleDown },
			change: func(s *v1alpha1.Sandbox) { s.Annotations = nil },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := bound.DeepCopy()
			if tc.old != nil {
				tc.old(old)
			}
			changed := old.DeepCopy()
			tc.change(changed)
			expect(t, ValidateSandboxUpdate(changed, old), tc.want)
		})
	}
}

// A sandbox is made from what it refers to at its birth, so it cannot refer to
// something else later.
func TestValidateSandboxUpdateOfTheReference(t *testing.T) {
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Spec.Template, s.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "python"}
	})
	expect(t, ValidateSandbox(old), nil)
	paused := old.DeepCopy()
	paused.Spec.Paused = true
	expect(t, ValidateSandboxUpdate(paused, old), nil)
	other := old.DeepCopy()
	other.Spec.TemplateRef.Name = "ruby"
	expect(t, ValidateSandboxUpdate(other, old), []string{"spec.templateRef: Forbidden: is immutable"})
	expect(t, ValidateSandboxUpdate(sandbox(t, nil), old), []string{
		"spec.templateRef: Forbidden: is immutable", "spec.template: " + yet,
	})
}

func TestValidateSandboxUpdateOfTheTemplate(t *testing.T) {
	const only = "spec.template: " + yet + "changing more of a sandbox's template than its metadata"
	claims := func(storage string) []runtime.RawExtension {
		return []runtime.RawExtension{*rawJSON(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"` + storage + `"}}}}`)}
	}
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Spec.Template = rawJSON(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}],"future":9007199254740993}}`)
		s.Spec.VolumeClaimTemplates = claims("1Gi")
	})
	tests := map[string]struct {
		template string
		claims   []runtime.RawExtension
		want     []string
	}{
		"same, written otherwise": {template: `{"spec":{"future":9007199254740993, "containers":[{"image":"b","name":"a"}]},"metadata":{"labels":{"a":"b"}}}`},
		"labels":                  {template: `{"metadata":{"labels":{"c":"d"}},"spec":{"containers":[{"name":"a","image":"b"}],"future":9007199254740993}}`},
		"no metadata":             {template: `{"spec":{"containers":[{"name":"a","image":"b"}],"future":9007199254740993}}`},
		"image": {
			template: `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"c"}],"future":9007199254740993}}`,
			want:     []string{only},
		},
		"the last digit": {
			template: `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}],"future":9007199254740992}}`,
			want:     []string{only},
		},
		"other claims": {template: string(old.Spec.Template.Raw), claims: claims("2Gi"), want: []string{"spec.volumeClaimTemplates: Forbidden: volumeClaimTemplates is immutable"}},
		"no claims":    {template: string(old.Spec.Template.Raw), claims: []runtime.RawExtension{}, want: []string{"spec.volumeClaimTemplates: Forbidden: volumeClaimTemplates is immutable"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := old.DeepCopy()
			changed.Spec.Template = rawJSON(tc.template)
			if tc.claims != nil {
				changed.Spec.VolumeClaimTemplates = tc.claims
			}
			expect(t, ValidateSandboxUpdate(changed, old), tc.want)
		})
	}
}

// What a sandbox has from birth stays, what says how it is to continue may change.
func TestValidateSandboxUpdateOfTheRest(t *testing.T) {
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Labels = map[string]string{v1alpha1.LabelSandboxTemplate: "python", "a": "b"}
		s.Spec.Runtimes = runtimesOf("csi")
	})
	tests := map[string]struct {
		change func(*v1alpha1.Sandbox)
		want   []string
	}{
		"nothing":             {change: func(*v1alpha1.Sandbox) {}},
		"another label":       {change: func(s *v1alpha1.Sandbox) { s.Labels["a"] = "c" }},
		"service":             {change: func(s *v1alpha1.Sandbox) { s.Spec.Service = ptr.To(true) }},
		"persistent contents": {change: func(s *v1alpha1.Sandbox) { s.Spec.PersistentContents = []string{"ip"} }},
		"another template": {
			change: func(s *v1alpha1.Sandbox) { s.Labels[v1alpha1.LabelSandboxTemplate] = "open" },
			want:   []string{"metadata.labels[agents.kruise.io/sandbox-template]: Forbidden: is immutable"},
		},
		"no template": {
			change: func(s *v1alpha1.Sandbox) { delete(s.Labels, v1alpha1.LabelSandboxTemplate) },
			want:   []string{"metadata.labels[agents.kruise.io/sandbox-template]: Forbidden: is immutable"},
		},
		"more runtimes": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Runtimes = runtimesOf("csi", "agent-runtime") },
			want:   []string{"spec.runtimes: Forbidden: is immutable"},
		},
		"no runtimes": {
			change: func(s *v1alpha1.Sandbox) { s.Spec.Runtimes = nil },
			want:   []string{"spec.runtimes: Forbidden: is immutable"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := old.DeepCopy()
			tc.change(changed)
			expect(t, ValidateSandboxUpdate(changed, old), tc.want)
		})
	}
}

func TestUnservedInSandbox(t *testing.T) {
	tests := map[string]func(*v1alpha1.SandboxSpec){
		"lifecycle":     func(s *v1alpha1.SandboxSpec) { s.Lifecycle = &v1alpha1.SandboxLifecycle{} },
		"upgradePolicy": func(s *v1alpha1.SandboxSpec) { s.UpgradePolicy = &v1alpha1.SandboxUpgradePolicy{} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, ValidateSandbox(sandbox(t, func(s *v1alpha1.Sandbox) { change(&s.Spec) })),
				[]string{"spec." + name + ": " + yet})
		})
	}
	if got := len(unservedInSandbox(&v1alpha1.SandboxSpec{})); got != len(tests) {
		t.Errorf("%d unserved fields, %d tested", got, len(tests))
	}
}

func TestValidateSandboxStatusUpdate(t *testing.T) {
	tests := map[string]struct {
		status v1alpha1.SandboxStatus
		want   []string
	}{
		"empty": {},
		"running": {status: v1alpha1.SandboxStatus{
			Phase: v1alpha1.SandboxRunning, SandboxIP: "10.0.0.1", Conditions: []metav1.Condition{condition()},
		}},
		"all wrong": {
			status: v1alpha1.SandboxStatus{
				Phase: "Sleeping", ObservedGeneration: -1, RecycledCount: -1,
				Conditions: []metav1.Condition{condition(), condition()},
			},
			want: []string{
				"status.phase: Unsupported value: \"Sleeping\"",
				"status.observedGeneration: Invalid value: -1",
				"status.recycledCount: Invalid value: -1",
				"status.conditions[1]",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := sandbox(t, func(s *v1alpha1.Sandbox) { s.Status = tc.status })
			expect(t, ValidateSandboxStatusUpdate(changed, sandbox(t, nil)), tc.want)
		})
	}
}

// Whatever decodes to the same is no change: what typed clients add is not refused.
func TestTypedUpdatesAreNoChange(t *testing.T) {
	const claim = `{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}%s}%s}`
	const container = `{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/d"}]%s}`
	old := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.Spec.Template = rawJSON(`{"spec":{"containers":[` + fmt.Sprintf(container, "") + `]}}`)
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(fmt.Sprintf(claim, "", ""))}
	})
	typed := old.DeepCopy()
	typed.Spec.Template = rawJSON(`{"metadata":{"creationTimestamp":null},"spec":{"containers":[` + fmt.Sprintf(container, `,"resources":{},"env":null`) + `]}}`)
	typed.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(fmt.Sprintf(claim, `,"accessModes":null`, `,"status":{}`))}
	expect(t, ValidateSandboxUpdate(typed, old), nil)
	expect(t, ValidateSandboxUpdate(old, typed), nil)

	// The same may be written at any length.
	limits := func(cpu string) *runtime.RawExtension {
		return rawJSON(`{"spec":{"containers":[` + fmt.Sprintf(container, `,"resources":{"limits":{"cpu":"`+cpu+`"}}`) + `]}}`)
	}
	short, long := old.DeepCopy(), old.DeepCopy()
	short.Spec.Template, long.Spec.Template = limits("1"), limits(strings.Repeat("0", maxTemplateSize)+"1")
	expect(t, ValidateSandboxUpdate(long, short), []string{"spec.template: Too long"})

	changed := typed.DeepCopy()
	changed.Spec.Template = rawJSON(`{"spec":{"containers":[` + fmt.Sprintf(container, `,"resources":{"limits":{"cpu":"1"}}`) + `]}}`)
	changed.Spec.VolumeClaimTemplates = []runtime.RawExtension{*rawJSON(fmt.Sprintf(claim, `,"accessModes":["ReadWriteOnce"]`, ""))}
	expect(t, ValidateSandboxUpdate(changed, old), []string{"spec.template: ", "spec.volumeClaimTemplates: "})
}
