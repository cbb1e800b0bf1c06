// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ErrNoTemplate means that a set has no inline pod template to make sandboxes
// from.
var ErrNoTemplate = errors.New("no inline pod template")

// maxGeneratePrefix leaves room for the five letters that the server appends, so
// that the name also fits where names have 63 characters at most.
const maxGeneratePrefix = 58

// NewSandbox makes a sandbox for the pool of a set, owned by the set and marked
// with the revision that it is made from (see Revision). It has no name yet, only
// a prefix for one. It is the caller's to keep and change.
func NewSandbox(set *v1alpha1.SandboxSet, revision string) (*v1alpha1.Sandbox, error) {
	sandbox, err := newSandbox(set)
	if err != nil {
		return nil, err
	}
	sandbox.Labels[v1alpha1.LabelTemplateHash] = revision
	owner := metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))
	owner.BlockOwnerDeletion = new(false) // see v1alpha1.FinalizerPool
	sandbox.OwnerReferences = []metav1.OwnerReference{*owner}
	return sandbox, nil
}

// NewSandboxForClaim makes a sandbox that never enters the pool, because a claim
// waits for it: nobody owns it yet, and it has no revision by which the set would
// replace it or take it back. Its priority is OpenKruise Agents' mark of such
// sandboxes, for those who look for it: here it does not decide what starts first.
func NewSandboxForClaim(set *v1alpha1.SandboxSet) (*v1alpha1.Sandbox, error) {
	sandbox, err := newSandbox(set)
	if err != nil {
		return nil, err
	}
	sandbox.Annotations[v1alpha1.AnnotationSandboxPriority] = v1alpha1.PriorityClaimed
	return sandbox, nil
}

func newSandbox(set *v1alpha1.SandboxSet) (*v1alpha1.Sandbox, error) {
	if set.Spec.Template == nil {
		return nil, fmt.Errorf("SandboxSet %s/%s: %w", set.Namespace, set.Name, ErrNoTemplate)
	}
	inherited, err := metadataOf(set.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("metadata of the pod template of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	labels := withoutInternal(inherited.Labels)
	labels[v1alpha1.LabelSandboxPool] = set.Name
	labels[v1alpha1.LabelSandboxTemplate] = set.Name
	labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse

	// The set may come from a cache and is read by others meanwhile.
	spec := set.Spec.DeepCopy()
	return &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    set.Namespace,
			GenerateName: generatePrefix(set.Name),
			Labels:       labels,
			Annotations:  withoutInternal(inherited.Annotations),
		},
		Spec: v1alpha1.SandboxSpec{
			PauseStrategy:      spec.PauseStrategy,
			PersistentContents: spec.PersistentContents,
			Runtimes:           spec.Runtimes,
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template:             spec.Template,
				VolumeClaimTemplates: spec.VolumeClaimTemplates,
			},
		},
	}, nil
}

func generatePrefix(set string) string {
	prefix := set + "-"
	return prefix[:min(len(prefix), maxGeneratePrefix)]
}

// podMetadata is the part of a pod template's metadata that a sandbox inherits.
type podMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func metadataOf(template *runtime.RawExtension) (podMetadata, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return podMetadata{}, err
	}
	var decoded struct {
		Metadata podMetadata `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return podMetadata{}, err
	}
	return decoded.Metadata, nil
}

// withoutInternal copies metadata without the keys that only the system writes:
// a template must not be able to make its sandboxes look locked or claimed. Two
// keys are meant to be set by users and stay.
func withoutInternal(in map[string]string) map[string]string {
	out := maps.Clone(in)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(key, _ string) bool {
		switch key {
		case v1alpha1.AnnotationCleanupEnabled, v1alpha1.AnnotationCleanupRetainOnFailure:
			return false
		}
		return strings.HasPrefix(key, v1alpha1.KeyPrefix) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix)
	})
	return out
}
