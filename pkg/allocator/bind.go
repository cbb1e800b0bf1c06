// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podresize"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// binding is what one claim writes on each of its sandboxes. Every part of it
// is the same for all of them but the lock, so it is worked out once.
type binding struct {
	claim       *v1alpha1.SandboxClaim
	labels      map[string]string
	annotations map[string]string
	// templates remembers, by the template before, the template after: the
	// sandboxes of a pool share theirs.
	templates map[string]boundTemplate
}

// boundTemplate is a pod template with a claim's metadata in it, and its hash.
type boundTemplate struct {
	raw      []byte
	revision string
}

// standing says what a sandbox is to the claim that holds it.
type standing bool

const (
	// counted: it is the user's, listed in the claim's status.
	counted standing = true
	// starting: the claim waits, for it or for others.
	starting standing = false
)

// newBinding works out what claim writes on its sandboxes. The fields
// are OpenKruise's, which other tools read (reference: its claim controller).
func newBinding(claim *v1alpha1.SandboxClaim) (*binding, error) {
	added, err := json.Marshal(map[string][]string{
		"labels":      slices.Sorted(maps.Keys(claim.Spec.Labels)),
		"annotations": slices.Sorted(maps.Keys(claim.Spec.Annotations)),
	})
	if err != nil {
		return nil, err
	}
	b := &binding{
		claim:       claim,
		labels:      map[string]string{},
		annotations: map[string]string{},
		templates:   map[string]boundTemplate{},
	}
	maps.Copy(b.labels, claim.Spec.Labels)
	b.labels[v1alpha1.LabelClaimName] = claim.Name
	b.labels[v1alpha1.LabelSandboxClaimed] = v1alpha1.ClaimedTrue
	maps.Copy(b.annotations, claim.Spec.Annotations)
	b.annotations[v1alpha1.AnnotationOwner] = string(claim.UID)
	b.annotations[v1alpha1.AnnotationUpdatedMetadataInClaim] = string(added)
	return b, nil
}

// apply makes sb the claim's: locked, labelled, detached from its set. sb is changed
// and must be the caller's own copy.
func (b *binding) apply(sb *v1alpha1.Sandbox, as standing) error {
	sb.OwnerReferences = nil
	sb.Labels = merged(sb.Labels, b.labels)
	sb.Annotations = merged(sb.Annotations, b.annotations)
	sb.Annotations[v1alpha1.AnnotationLock] = string(uuid.NewUUID())
	b.stand(sb, as)
	if t := b.claim.Spec.ShutdownTime; t != nil {
		shutdown := metav1.NewTime(t.UTC().Truncate(time.Second))
		sb.Spec.ShutdownTime = &shutdown
		sb.Spec.PauseTime = nil
	}
	observed := false // the template always changes: it names the owner
	if podresize.InProgress(sb) {
		sb.Generation++ // and here the pod has to follow
	} else {
		observed = nextGeneration(sb)
	}
	if sb.Spec.Template == nil {
		return nil
	}
	template, err := b.template(sb.Spec.Template.Raw)
	if err != nil {
		return fmt.Errorf("template of sandbox %s/%s: %w", sb.Namespace, sb.Name, err)
	}
	sb.Spec.Template = &runtime.RawExtension{Raw: template.raw}
	if observed {
		// Spares the sandbox's controller a write for each claim.
		sb.Status.UpdateRevision = template.revision
	}
	return nil
}

// nextGeneration counts up the generation, and with it what its controller had
// observed. A claim changes metadata alone, which leaves a running sandbox as
// ready as it was; without this, kubectl wait and all who compare generations
// would take it for not ready until its controller has come by. It says whether
// the status was up to date, and so is kept that way.
func nextGeneration(sb *v1alpha1.Sandbox) bool {
	seen := sb.Generation
	sb.Generation++
	if seen == 0 || sb.Status.ObservedGeneration != seen {
		return false
	}
	sb.Status.ObservedGeneration = sb.Generation
	for i := range sb.Status.Conditions {
		if c := &sb.Status.Conditions[i]; c.ObservedGeneration == seen {
			c.ObservedGeneration = sb.Generation
		}
	}
	return true
}

// stand sets what a sandbox that the claim holds is to it. With Retain one that
// counts has no owner, so that deleting or expiring the claim never deletes it.
func (b *binding) stand(sb *v1alpha1.Sandbox, as standing) {
	if as == starting {
		sb.Annotations[v1alpha1.AnnotationStarting] = "true"
	} else {
		delete(sb.Annotations, v1alpha1.AnnotationStarting)
	}
	sb.OwnerReferences = slices.DeleteFunc(sb.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == b.claim.UID })
	if as == starting || b.claim.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		owner := metav1.NewControllerRef(b.claim, v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"))
		sb.OwnerReferences = append(sb.OwnerReferences, *owner)
	}
}

// template returns the pod template with the claim's metadata in it, which is
// how labels, annotations and the owner reach the Pod.
func (b *binding) template(raw []byte) (boundTemplate, error) {
	if done, ok := b.templates[string(raw)]; ok {
		return done, nil
	}
	bound, err := b.mergedTemplate(raw)
	if err != nil {
		return boundTemplate{}, err
	}
	revision, err := podtemplate.TemplateRevision(&runtime.RawExtension{Raw: bound})
	if err != nil {
		return boundTemplate{}, err
	}
	done := boundTemplate{raw: bound, revision: revision}
	b.templates[string(raw)] = done
	return done, nil
}

// mergedTemplate puts the claim's metadata into a template.
func (b *binding) mergedTemplate(raw []byte) ([]byte, error) {
	var template map[string]json.RawMessage
	if err := json.Unmarshal(raw, &template); err != nil {
		return nil, err
	}
	var meta map[string]json.RawMessage
	if m, ok := template["metadata"]; ok {
		if err := json.Unmarshal(m, &meta); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	labels := merged(b.claim.Spec.Labels, map[string]string{v1alpha1.LabelOwner: string(b.claim.UID)})
	if err := mergeInto(meta, "labels", labels); err != nil {
		return nil, err
	}
	annotations := maps.Clone(b.claim.Spec.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, v1alpha1.KeyPrefix) || strings.HasPrefix(key, v1alpha1.E2BKeyPrefix)
	})
	if len(annotations) > 0 {
		if err := mergeInto(meta, "annotations", annotations); err != nil {
			return nil, err
		}
	}
	var err error
	if template["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(template)
}

// mergeInto adds the entries of more to the string map that meta holds at key.
func mergeInto(meta map[string]json.RawMessage, key string, more map[string]string) error {
	var have map[string]string
	if raw, ok := meta[key]; ok {
		if err := json.Unmarshal(raw, &have); err != nil {
			return fmt.Errorf("metadata.%s: %w", key, err)
		}
	}
	raw, err := json.Marshal(merged(have, more))
	if err != nil {
		return err
	}
	meta[key] = raw
	return nil
}

// merged returns a new map with the entries of base and, over them, of more.
func merged(base, more map[string]string) map[string]string {
	all := make(map[string]string, len(base)+len(more))
	maps.Copy(all, base)
	maps.Copy(all, more)
	return all
}
