// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// illegal returns what no new object may have: a template of more than its size or
// of no sense, and claims and strategies of no sense.
func illegal(template string) v1alpha1.EmbeddedSandboxTemplate {
	e := v1alpha1.EmbeddedSandboxTemplate{VolumeClaimTemplates: []runtime.RawExtension{*rawJSON(`{"spec":7}`)}}
	if template != "" {
		e.Template = rawJSON(template)
	}
	return e
}

var illegalTemplates = map[string]string{
	"large":     `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", MaxTemplateSize) + `"}},"spec":{"containers":[{"name":"a","image":"b"}]}}`,
	"malformed": `{"spec":{"containers":7}}`,
	"none":      "",
}

// What was stored under other rules stays changeable in all else.
func TestUpdatesCheckWhatChanges(t *testing.T) {
	wrong := &v1alpha1.PauseStrategy{Type: "Sleep"}
	for name, raw := range illegalTemplates {
		t.Run(name, func(t *testing.T) {
			old := sandbox(t, func(s *v1alpha1.Sandbox) {
				s.Spec.EmbeddedSandboxTemplate, s.Spec.PauseStrategy = illegal(raw), wrong
			})
			if errs := ValidateSandbox(old); len(errs) != 3 {
				t.Errorf("new: %v", errs)
			}
			changed := old.DeepCopy()
			changed.Finalizers = []string{"example.com/a"}
			changed.Spec.Paused, changed.Spec.ShutdownTime = true, new(metav1.Unix(1, 0))
			expect(t, ValidateSandboxUpdate(changed, old), nil)
			changed.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: "Doze"}
			expect(t, ValidateSandboxUpdate(changed, old), []string{"spec.pauseStrategy.type: "})

			half := new(intstr.FromString("half"))
			oldSet := set(t, func(s *v1alpha1.SandboxSet) {
				s.Spec.EmbeddedSandboxTemplate, s.Spec.PauseStrategy = illegal(raw), wrong
				s.Spec.ScaleStrategy.MaxUnavailable, s.Spec.UpdateStrategy.MaxUnavailable = half, half
			})
			if errs := ValidateSandboxSet(oldSet); len(errs) != 5 {
				t.Errorf("new: %v", errs)
			}
			changedSet := oldSet.DeepCopy()
			changedSet.Spec.Replicas = new(int32(0))
			expect(t, ValidateSandboxSetUpdate(changedSet, oldSet), nil)
			changedSet.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("third"))
			expect(t, ValidateSandboxSetUpdate(changedSet, oldSet), []string{"spec.updateStrategy.maxUnavailable: "})

			oldTemplate := template(t, func(s *v1alpha1.SandboxTemplate) {
				s.Spec.EmbeddedSandboxTemplate = v1alpha1.EmbeddedSandboxTemplate{Template: illegal(raw).Template}
			})
			if errs := ValidateSandboxTemplate(oldTemplate); len(errs) != 1 {
				t.Errorf("new: %v", errs)
			}
			changedTemplate := oldTemplate.DeepCopy()
			changedTemplate.Labels = map[string]string{"a": "b"}
			expect(t, ValidateSandboxTemplateUpdate(changedTemplate, oldTemplate), nil)
		})
	}
}

// A volume that nothing mounts is a mistake of whoever changes either side.
func TestUpdateOfTheMounts(t *testing.T) {
	claim := *rawJSON(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	old := set(t, func(s *v1alpha1.SandboxSet) {
		s.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"data","mountPath":"/a"}]}]}}`)
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{claim}
	})
	changed := old.DeepCopy()
	changed.Spec.Template = rawJSON(`{"spec":{"containers":[{"name":"a","image":"b"}]}}`)
	expect(t, ValidateSandboxSetUpdate(changed, old), []string{"spec.volumeClaimTemplates[0].metadata.name: Invalid value: "})
}

// Whatever an object that is being deleted looks like, its finalizers can go.
func TestUpdatesOfWhatIsBeingDeleted(t *testing.T) {
	going := meta("going")
	going.DeletionTimestamp, going.Finalizers = new(metav1.Unix(1, 0)), []string{"example.com/a"}
	sb := sandbox(t, func(s *v1alpha1.Sandbox) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate = going, illegal(illegalTemplates["malformed"])
		s.Spec.PersistentContents = []string{"ip"}
	})
	freed := sb.DeepCopy()
	freed.Finalizers = nil
	expect(t, ValidateSandboxUpdate(freed, sb), nil)
	freed.Spec.Template = rawTemplate(t)
	expect(t, ValidateSandboxUpdate(freed, sb), []string{"spec.template: " + yet})

	pool := set(t, func(s *v1alpha1.SandboxSet) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate, s.Spec.PersistentContents = going, illegal(""), []string{"ip"}
	})
	freedPool := pool.DeepCopy()
	freedPool.Finalizers = nil
	expect(t, ValidateSandboxSetUpdate(freedPool, pool), nil)

	model := template(t, func(s *v1alpha1.SandboxTemplate) {
		s.ObjectMeta, s.Spec.EmbeddedSandboxTemplate, s.Spec.Service = going, illegal(""), new(true)
	})
	freedModel := model.DeepCopy()
	freedModel.Finalizers = nil
	expect(t, ValidateSandboxTemplateUpdate(freedModel, model), nil)
}
