// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// SetRevision is the hash of everything in a set that reaches its sandboxes, whose
// pod template is resolved. Sandboxes carry it as their label template-hash; one
// that carries another was made from an older (or newer) state of the set and is
// replaced while unused.
//
// How often and how fast sandboxes are made is no part of it: to scale a set is
// no reason to replace anything. Neither is where the template comes from, unless
// that decides which NetworkPolicy selects the pods: they have that from birth, by a
// label that never changes, and so need to be made anew for another one.
func SetRevision(set *v1alpha1.SandboxSet, resolved *Resolved) (string, error) {
	network := ""
	if resolved.NetworkManaged {
		network = v1alpha1.TemplateLabel(TemplateOf(set))
	}
	revision, err := hash(struct {
		Template             *runtime.RawExtension    `json:"template,omitempty"`
		VolumeClaimTemplates []runtime.RawExtension   `json:"volumeClaimTemplates,omitempty"`
		PersistentContents   []string                 `json:"persistentContents,omitempty"`
		Runtimes             []v1alpha1.RuntimeConfig `json:"runtimes,omitempty"`
		PauseStrategy        *v1alpha1.PauseStrategy  `json:"pauseStrategy,omitempty"`
		Service              *bool                    `json:"service,omitempty"`
		Network              string                   `json:"network,omitempty"`
	}{
		Template:             resolved.Template,
		VolumeClaimTemplates: set.Spec.VolumeClaimTemplates,
		PersistentContents:   set.Spec.PersistentContents,
		Runtimes:             set.Spec.Runtimes,
		PauseStrategy:        set.Spec.PauseStrategy,
		Service:              resolved.Service,
		Network:              network,
	})
	if err != nil {
		return "", fmt.Errorf("hashing the template of SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return revision, nil
}

// SandboxRevision is the hash of a sandbox's own pod template, its
// status.updateRevision. Of one that refers to a template it is the hash of the
// reference, as with OpenKruise Agents: an edit of the template is none of the
// sandboxes that run.
func SandboxRevision(sandbox *v1alpha1.Sandbox) (string, error) {
	var revision string
	var err error
	if sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef != nil {
		revision, err = hash(sandbox.Spec.TemplateRef)
	} else {
		revision, err = TemplateRevision(sandbox.Spec.Template)
	}
	if err != nil {
		return "", fmt.Errorf("revision of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return revision, nil
}

// StatusAtBirth is the status with which a sandbox comes into being, whoever makes it:
// Pending, like a Pod, and of its own spec. So no client sees the empty phase, which
// counts as paused on a sandbox without a set, or a revision that is not there yet. Of a
// sandbox whose template cannot be read there is no revision.
func StatusAtBirth(sandbox *v1alpha1.Sandbox) v1alpha1.SandboxStatus {
	revision, err := SandboxRevision(sandbox)
	if err != nil {
		revision = "" // validation says what is wrong
	}
	return v1alpha1.SandboxStatus{
		Phase:              v1alpha1.SandboxPending,
		ObservedGeneration: sandbox.Generation,
		UpdateRevision:     revision,
	}
}

// TemplateRevision is the hash of a pod template.
func TemplateRevision(template *runtime.RawExtension) (string, error) {
	revision, err := hash(template)
	if err != nil {
		return "", fmt.Errorf("hashing a pod template: %w", err)
	}
	return revision, nil
}

// hash is FNV-32a over canonical JSON, in letters that spell no words. Templates
// are kept as the user sent them, so the order of keys and the white space must
// not count: the value is decoded and encoded again. Numbers stay as written,
// since float64 would make large ones equal.
func hash(value any) (string, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var generic any
	if err := decoder.Decode(&generic); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(generic)
	if err != nil {
		return "", err
	}
	sum := fnv.New32a()
	_, _ = sum.Write(canonical)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10)), nil
}

// RevisionName is the name of the SandboxTemplate that holds a revision of a set.
func RevisionName(set *v1alpha1.SandboxSet, revision string) string { return set.Name + "-" + revision }

// IsRevision reports whether a template holds a revision of a set. That a set owns it is
// not enough: users can say that of a template of theirs.
func IsRevision(template *v1alpha1.SandboxTemplate) bool {
	owner := metav1.GetControllerOfNoCopy(template)
	if owner == nil || owner.Kind != "SandboxSet" || !strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/") {
		return false
	}
	revision := template.Labels[v1alpha1.LabelTemplateHash]
	return revision != "" && template.Name == owner.Name+"-"+revision
}

// Materialize makes the SandboxTemplate that holds a revision of a set, owned by
// it: everything that the revision is the hash of. It is the caller's to keep and
// change.
func Materialize(set *v1alpha1.SandboxSet, revision string, resolved *Resolved) *v1alpha1.SandboxTemplate {
	spec := set.Spec.DeepCopy()
	materialized := &v1alpha1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            RevisionName(set, revision),
			Labels:          map[string]string{v1alpha1.LabelSandboxPool: set.Name, v1alpha1.LabelTemplateHash: revision},
			OwnerReferences: []metav1.OwnerReference{ownedBySet(set)},
		},
		Spec: v1alpha1.SandboxTemplateSpec{
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template:             resolved.Template.DeepCopy(),
				VolumeClaimTemplates: spec.VolumeClaimTemplates,
			},
			PauseStrategy:      spec.PauseStrategy,
			PersistentContents: spec.PersistentContents,
			Runtimes:           spec.Runtimes,
			Service:            resolved.service(),
		},
	}
	setLabelTemplate(materialized, TemplateOf(set))
	return materialized
}

// AtRevision is a set as it was at the revision that a template made by
// Materialize holds, for NewSandbox to make more of its sandboxes. It shares its
// parts with both and is not to be changed.
func AtRevision(set *v1alpha1.SandboxSet, materialized *v1alpha1.SandboxTemplate) (*v1alpha1.SandboxSet, *Resolved) {
	then := *set
	then.Spec.VolumeClaimTemplates = materialized.Spec.VolumeClaimTemplates
	then.Spec.PauseStrategy = materialized.Spec.PauseStrategy
	then.Spec.PersistentContents = materialized.Spec.PersistentContents
	then.Spec.Runtimes = materialized.Spec.Runtimes
	if name := materialized.Labels[v1alpha1.LabelSandboxTemplate]; name != "" {
		// Its pods are not those of another template that the set refers to by now.
		then.Spec.Template, then.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: name}
	}
	return &then, &Resolved{Template: materialized.Spec.Template, Service: materialized.Spec.Service}
}
