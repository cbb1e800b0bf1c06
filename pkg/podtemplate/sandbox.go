// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// randomLetters is how many random letters and digits end the name of a sandbox, of
// five bits each. A name that comes again would stand for two sandboxes in logs, in
// metrics and in what clients remember. The five that a server appends to a
// generateName come again after some thousand names; 60 bits do not, for as long as
// any installation runs.
const randomLetters = 12

// maxPrefix leaves room for them, so that the name also fits where names have 63
// characters at most.
const maxPrefix = validation.DNS1123LabelMaxLength - randomLetters

// NewName returns a name for a sandbox that begins with prefix, the generateName of
// those that this package makes. The random part has lower case letters and digits
// and no dash.
func NewName(prefix string) string {
	return prefix + strings.ToLower(rand.Text()[:randomLetters])
}

// NewSandbox makes a sandbox for the pool of a set, owned by the set and marked
// with the revision that it is made from (see SetRevision), whose pod template is
// resolved. One of a set that refers to a template refers to the SandboxTemplate
// that holds the revision (see NewHolder), and so stays small. It has no name
// yet, only a prefix for one. It is the caller's to keep and change.
func NewSandbox(set *v1alpha1.SandboxSet, revision string, resolved *Resolved) (*v1alpha1.Sandbox, error) {
	sandbox, err := newSandboxOfSet(set, resolved)
	if err != nil {
		return nil, err
	}
	if set.Spec.Template == nil {
		sandbox.Spec.Template = nil
		// RevisionName may be another by now: whether the set has a patch decides it.
		holder := cmp.Or(resolved.holder, RevisionName(set, revision))
		sandbox.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: holder}
	}
	sandbox.Labels[v1alpha1.LabelTemplateHash] = revision
	sandbox.Labels[v1alpha1.AgentLabelPool] = v1alpha1.NameHash(set.Name)
	sandbox.Labels[v1alpha1.AgentLabelCreatedBy] = v1alpha1.AgentCreatedByController
	if _, chosen := sandbox.Annotations[v1alpha1.AnnotationSafeToEvict]; !chosen && v1alpha1.IsAgentSandboxPool(set) {
		sandbox.Annotations[v1alpha1.AnnotationSafeToEvict] = v1alpha1.SafeToEvict
	}
	sandbox.OwnerReferences = []metav1.OwnerReference{ownedBySet(set)}
	return sandbox, nil
}

func ownedBySet(set *v1alpha1.SandboxSet) metav1.OwnerReference {
	owner := metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))
	owner.BlockOwnerDeletion = new(false) // see v1alpha1.FinalizerPool
	return *owner
}

// NewSandboxForClaim makes a sandbox that never enters the pool, because a claim
// waits for it: it has no owner yet, and it has no revision by which the set would
// replace it or take it back. It holds the set's resolved pod template itself. Its
// priority is OpenKruise Agents' mark of such sandboxes, for those who look for
// it: here it does not decide what starts first.
func NewSandboxForClaim(set *v1alpha1.SandboxSet, resolved *Resolved) (*v1alpha1.Sandbox, error) {
	sandbox, err := newSandboxOfSet(set, resolved)
	if err != nil {
		return nil, err
	}
	sandbox.Annotations[v1alpha1.AnnotationSandboxPriority] = v1alpha1.PriorityClaimed
	return sandbox, nil
}

// NewSandboxFromTemplate makes a sandbox for a claim straight from a template,
// past any set. It is like NewSandboxForClaim, but in no pool, and everything in
// it is the template's.
func NewSandboxFromTemplate(template *v1alpha1.SandboxTemplate, resolved *Resolved) (*v1alpha1.Sandbox, error) {
	spec := template.Spec.DeepCopy()
	sandbox, err := newSandbox(template.Namespace, template.Name, resolved, v1alpha1.SandboxSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{VolumeClaimTemplates: resolved.copiedVolumes(spec.VolumeClaimTemplates)},
		PersistentContents:      spec.PersistentContents,
		Runtimes:                spec.Runtimes,
		PauseStrategy:           spec.PauseStrategy,
		Service:                 spec.Service,
	})
	if err != nil {
		return nil, fmt.Errorf("SandboxTemplate %s/%s: %w", template.Namespace, template.Name, err)
	}
	markTemplate(sandbox, template.Name)
	sandbox.Annotations[v1alpha1.AnnotationSandboxPriority] = v1alpha1.PriorityClaimed
	return sandbox, nil
}

func newSandboxOfSet(set *v1alpha1.SandboxSet, resolved *Resolved) (*v1alpha1.Sandbox, error) {
	// The set may come from a cache and is read by others meanwhile.
	spec := set.Spec.DeepCopy()
	sandbox, err := newSandbox(set.Namespace, set.Name, resolved, v1alpha1.SandboxSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{VolumeClaimTemplates: resolved.copiedVolumes(spec.VolumeClaimTemplates)},
		PersistentContents:      spec.PersistentContents,
		Runtimes:                spec.Runtimes,
		PauseStrategy:           spec.PauseStrategy,
		Service:                 resolved.service(),
	})
	if err != nil {
		return nil, fmt.Errorf("SandboxSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	sandbox.Labels[v1alpha1.LabelSandboxPool] = set.Name
	markTemplate(sandbox, TemplateOf(set))
	return sandbox, nil
}

// TemplateOf is the name of the template that a set is a pool of: the one that it
// refers to, or its own.
func TemplateOf(set *v1alpha1.SandboxSet) string {
	if set.Spec.Template == nil && set.Spec.TemplateRef != nil {
		return set.Spec.TemplateRef.Name
	}
	return set.Name
}

// setLabelTemplate labels an object with labels with its template.
func setLabelTemplate(object metav1.Object, name string) {
	object.GetLabels()[v1alpha1.LabelSandboxTemplate] = v1alpha1.TemplateLabel(name)
}

// markTemplate writes on a sandbox which template it is made from, in the words of either
// API.
func markTemplate(sandbox *v1alpha1.Sandbox, name string) {
	setLabelTemplate(sandbox, name)
	sandbox.Labels[v1alpha1.AgentLabelTemplate] = v1alpha1.NameHash(name)
	sandbox.Annotations[v1alpha1.AgentAnnotationTemplate] = name
}

// newSandbox makes a sandbox of a spec, which is its own already, and the pod template.
func newSandbox(namespace, name string, resolved *Resolved, spec v1alpha1.SandboxSpec) (*v1alpha1.Sandbox, error) {
	if resolved == nil || resolved.Template == nil {
		return nil, ErrNoTemplate
	}
	inherited, err := metadataOf(resolved.Template)
	if err != nil {
		return nil, fmt.Errorf("metadata of the pod template: %w", err)
	}
	labels := withoutInternal(inherited.Labels)
	labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedFalse
	spec.Template = resolved.Template.DeepCopy()
	return &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    namespace,
			GenerateName: namePrefix(name),
			Labels:       labels,
			Annotations:  withoutInternal(inherited.Annotations),
		},
		Spec: spec,
	}, nil
}

// CheckService returns an error if the template has service: true, and the sandboxes of a set
// (or of a template, if they are made straight from it) of this name have no valid names for
// Services.
func (r *Resolved) CheckService(name string) error {
	return v1alpha1.CheckServiceName(r.Service, namePrefix(name)+strings.Repeat("x", randomLetters))
}

// namePrefix is what the names of the sandboxes of a set or template begin with: its
// name, cut where it is too long, and a dash.
func namePrefix(name string) string {
	name = name[:min(len(name), maxPrefix-1)]
	return strings.TrimRight(name, "-.") + "-" // a label may not begin or end with a dash
}
