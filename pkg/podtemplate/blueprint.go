// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// RecreateReplaces reports whether a set with the update type Recreate, whose revision is target, replaces
// an unused sandbox of its pool: one of another template, or of a revision that says something else of its
// pods, volumes or Service. Metadata alone is no reason. sameButMetadata reports that of an older revision.
func RecreateReplaces(set *v1alpha1.SandboxSet, sandbox *v1alpha1.Sandbox, target string, sameButMetadata func(revision string) bool) bool {
	revision := sandbox.Labels[v1alpha1.LabelTemplateHash]
	return sandbox.Labels[v1alpha1.LabelSandboxTemplate] != v1alpha1.TemplateLabel(TemplateOf(set)) ||
		revision != target && !sameButMetadata(revision)
}

// SameButMetadata reports whether two SandboxTemplates that hold revisions make the same
// sandboxes except for labels and annotations of pods and volume claims. Those that cannot be
// read make none, and so not the same.
func SameButMetadata(a, b *v1alpha1.SandboxTemplate) bool {
	blueprintA, errA := blueprintOf(&a.Spec)
	blueprintB, errB := blueprintOf(&b.Spec)
	return errA == nil && errB == nil && bytes.Equal(blueprintA, blueprintB)
}

// blueprintOf is a spec without metadata in canonical JSON: equal for specs that decode to the
// same.
func blueprintOf(spec *v1alpha1.SandboxTemplateSpec) ([]byte, error) {
	bare := content{
		PersistentContents: spec.PersistentContents, Runtimes: spec.Runtimes, PauseStrategy: spec.PauseStrategy, Service: spec.Service,
	}
	if spec.Template == nil {
		return nil, ErrNoTemplate
	}
	template, err := asObject(v1alpha1.NormalizedPodTemplate(spec.Template))
	if err != nil {
		return nil, err
	}
	delete(template, "metadata")
	if bare.Template, err = encoded(template); err != nil {
		return nil, err
	}
	for i := range spec.VolumeClaimTemplates {
		name, err := claimTemplateName(&spec.VolumeClaimTemplates[i])
		if err != nil {
			return nil, err
		}
		claim, err := asObject(v1alpha1.NormalizedVolumeClaimTemplate(&spec.VolumeClaimTemplates[i]))
		if err != nil {
			return nil, err
		}
		claim["metadata"] = map[string]any{"name": name}
		raw, err := encoded(claim)
		if err != nil {
			return nil, err
		}
		bare.VolumeClaimTemplates = append(bare.VolumeClaimTemplates, *raw)
	}
	return canonical(&bare)
}

// asObject returns a decoded JSON value that has to be an object. err is that of decoding it.
func asObject(value any, err error) (map[string]any, error) {
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errNotAnObject
	}
	return object, nil
}

func encoded(object map[string]any) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &runtime.RawExtension{Raw: raw}, nil
}
