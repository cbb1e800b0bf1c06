// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// templateKeys is the value of v1alpha1.AnnotationTemplateMetadata.
type templateKeys struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// podMetadataOf returns the labels and annotations of a sandbox's pod: those of
// the template, and over them what tells whose pod it is. A claim writes its own
// into the template.
func podMetadataOf(sandbox *v1alpha1.Sandbox, revision string) (podMetadata, error) {
	template, err := metadataOf(sandbox.Spec.Template)
	if err != nil {
		return podMetadata{}, fmt.Errorf("metadata of the template: %w", err)
	}
	metadata := podMetadata{Labels: withoutAgent(template.Labels), Annotations: withoutAgent(template.Annotations)}
	if sandbox.Annotations[v1alpha1.AnnotationSafeToEvict] == v1alpha1.SafeToEvict && v1alpha1.IsInPool(sandbox) {
		if _, chosen := metadata.Annotations[v1alpha1.AnnotationSafeToEvict]; !chosen {
			metadata.Annotations[v1alpha1.AnnotationSafeToEvict] = v1alpha1.SafeToEvict
		}
	}
	keys := templateKeys{
		Labels:      slices.Sorted(maps.Keys(metadata.Labels)),
		Annotations: slices.Sorted(maps.Keys(metadata.Annotations)),
	}
	if len(keys.Labels)+len(keys.Annotations) > 0 {
		raw, err := json.Marshal(keys)
		if err != nil {
			return podMetadata{}, err
		}
		metadata.Annotations[v1alpha1.AnnotationTemplateMetadata] = string(raw)
	}
	metadata.Annotations[v1alpha1.AnnotationCreatedBy] = v1alpha1.CreatedBySandbox
	metadata.Labels[v1alpha1.LabelCreatedBy] = v1alpha1.CreatedBySandbox
	metadata.Labels[v1alpha1.LabelPodTemplateHash] = revision
	// A NetworkPolicy selects by it, so it is the sandbox's and never the template's.
	delete(metadata.Labels, v1alpha1.LabelSandboxTemplate)
	if template := sandbox.Labels[v1alpha1.LabelSandboxTemplate]; template != "" {
		metadata.Labels[v1alpha1.LabelSandboxTemplate] = template
	}
	// So does another, by whether there is an agent-runtime.
	delete(metadata.Labels, v1alpha1.LabelAgentRuntime)
	if HasAgentRuntime(sandbox) {
		metadata.Labels[v1alpha1.LabelAgentRuntime] = v1alpha1.AgentRuntimeTrue
	}
	// A name can be longer than a label may be. No selector finds such a sandbox by
	// label then, which beats a pod that cannot be created.
	delete(metadata.Labels, v1alpha1.LabelSandboxName)
	if len(sandbox.Name) <= validation.LabelValueMaxLength {
		metadata.Labels[v1alpha1.LabelSandboxName] = sandbox.Name
	}
	maps.Copy(metadata.Labels, agentLabelsOf(sandbox))
	return metadata, nil
}

// unknownCreator is what the pod of a sandbox says that does not tell who made it.
const unknownCreator = "unknown"

// agentLabelsOf returns the labels of a sandbox's pod by which clients of agent-sandbox
// find it. That it is in a pool, and of which template it is, say what no user changes on
// the sandbox: its owner, and the label by which NetworkPolicies select.
func agentLabelsOf(sandbox *v1alpha1.Sandbox) map[string]string {
	labels := map[string]string{
		v1alpha1.AgentLabelNameHash:  v1alpha1.NameHash(sandbox.Name),
		v1alpha1.AgentLabelCreatedBy: cmp.Or(sandbox.Labels[v1alpha1.AgentLabelCreatedBy], unknownCreator),
	}
	if pool := v1alpha1.PoolOf(sandbox); pool != nil {
		labels[v1alpha1.AgentLabelPool] = v1alpha1.NameHash(pool.Name)
	}
	template := sandbox.Annotations[v1alpha1.AgentAnnotationTemplate]
	if of := sandbox.Labels[v1alpha1.LabelSandboxTemplate]; v1alpha1.TemplateLabel(template) != of {
		template = of
	}
	if template != "" {
		labels[v1alpha1.AgentLabelTemplate] = v1alpha1.NameHash(template)
	}
	if claim := sandbox.Labels[v1alpha1.AgentLabelClaimUID]; claim != "" {
		labels[v1alpha1.AgentLabelClaimUID] = claim
	}
	return labels
}

// withoutAgent copies metadata of a pod template without the keys of agent-sandbox, which
// it cannot set.
func withoutAgent(in map[string]string) map[string]string {
	out := make(map[string]string, len(in)+len(in)/2)
	for key, value := range in {
		if !isAgentKey(key) {
			out[key] = value
		}
	}
	return out
}

// add takes over what there is not yet. What tells whose pod it is cannot be added:
// a runtime does not say which claim or template a pod belongs to.
func (m *podMetadata) add(more podMetadata) {
	for key, value := range withoutInternal(more.Labels) {
		if _, ok := m.Labels[key]; !ok {
			m.Labels[key] = value
		}
	}
	for key, value := range withoutInternal(more.Annotations) {
		if _, ok := m.Annotations[key]; !ok {
			m.Annotations[key] = value
		}
	}
}

// PodMetadataOutdated reports whether a pod has other metadata than its sandbox
// wants, as far as the pod's labels tell. What others changed by hand beside that
// is left alone.
func PodMetadataOutdated(labels map[string]string, revision string) bool {
	return labels[v1alpha1.LabelPodTemplateHash] != revision ||
		labels[v1alpha1.LabelCreatedBy] != v1alpha1.CreatedBySandbox
}

// PodMetadataPatch is a strategic merge patch that gives a pod the metadata that its
// sandbox wants by now, and the owner reference to the sandbox in the words of the API in
// which it was claimed. annotations are the pod's, which tell what the template
// wanted before: what it no longer wants is taken away, and what others added
// stays, other owners too. The patch is for the pod with this UID alone; the server
// refuses it as invalid for another one.
func PodMetadataPatch(sandbox *v1alpha1.Sandbox, revision string, uid types.UID, annotations map[string]string) ([]byte, error) {
	metadata, err := podMetadataOf(sandbox, revision)
	if err != nil {
		return nil, fmt.Errorf("metadata for the pod of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	var before templateKeys
	// What cannot be read was not written here: then nothing is known to be ours.
	_ = json.Unmarshal([]byte(annotations[v1alpha1.AnnotationTemplateMetadata]), &before)
	// A router sends nothing to a pod that says it is in a pool.
	wantLabels := withRemovals(metadata.Labels, append(before.Labels, v1alpha1.AgentLabelPool))
	wantAnnotations := withRemovals(metadata.Annotations, append(before.Annotations, v1alpha1.AnnotationTemplateMetadata))
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             uid,
		"labels":          wantLabels,
		"annotations":     wantAnnotations,
		"ownerReferences": []metav1.OwnerReference{ownedBy(sandbox)},
	}})
}

// withRemovals is a patch of a map: nil is a key that goes.
func withRemovals(want map[string]string, before []string) map[string]any {
	patch := make(map[string]any, len(want)+len(before))
	for _, key := range before {
		patch[key] = nil
	}
	for key, value := range want {
		patch[key] = value
	}
	return patch
}
