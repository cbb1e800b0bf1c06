// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// A claim's labels and annotations are on its sandboxes and, as far as the pool lets them,
// in the pod templates of these, which is how they reach pods; its additionalPodMetadata is
// in the pod templates alone. Two annotations of the sandbox list which keys are the
// claim's, so that they can be changed and taken away later. As with server-side apply, the
// claim's keys are the claim's, whatever others made of them, and all other keys are not.

// claimKeys are the keys that a claim put somewhere, sorted, in the form of OpenKruise.
type claimKeys struct {
	Annotations []string `json:"annotations"`
	Labels      []string `json:"labels"`
}

// keysIn reads a list of keys. What cannot be read names none.
func keysIn(list string) claimKeys {
	var keys claimKeys
	if list == "" || json.Unmarshal([]byte(list), &keys) != nil {
		return claimKeys{}
	}
	return keys
}

// encode is the list as it is stored.
func (k claimKeys) encode() (string, error) {
	raw, err := json.Marshal(k)
	return string(raw), err
}

// boundTemplate is a pod template with a claim's metadata in it, and its hash.
type boundTemplate struct {
	raw      []byte
	revision string
	// keys are those that the claim put into it, and none whether there are none.
	keys string
	none bool
	// same reports whether the template was like this before.
	same bool
}

// noteKeys notes on a sandbox, which had these keys in its template before, which ones the
// claim has put there. A sandbox that never had any stays without the list.
func (b *boundTemplate) noteKeys(sb *v1alpha1.Sandbox, before string) {
	if before == "" && b.none {
		delete(sb.Annotations, v1alpha1.AnnotationPodMetadataInClaim)
		return
	}
	sb.Annotations[v1alpha1.AnnotationPodMetadataInClaim] = b.keys
}

// Resync returns what a sandbox that the claim holds becomes, so that it has the metadata
// that the claim says now, or nil if it has that. policy says which keys may newly be on
// the pod; nil is all. It fails with a *RefusedError if the pod template sets a key of
// additionalPodMetadata to another value, and with another error if the template cannot be
// read: then the sandbox is to stay as it is.
func (m *Marks) Resync(sb *v1alpha1.Sandbox, policy *v1alpha1.PodMetadataPolicy) (*v1alpha1.Sandbox, error) {
	spec, next := &m.claim.Spec, shallowCopy(sb)
	put := keysIn(sb.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim])
	next.Labels = replaced(next.Labels, put.Labels, spec.Labels)
	next.Annotations = replaced(next.Annotations, put.Annotations, spec.Annotations)
	next.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim] = m.annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]
	changed := false
	if sb.Spec.Template != nil {
		before := sb.Annotations[v1alpha1.AnnotationPodMetadataInClaim]
		template, err := m.template(sb.Spec.Template.Raw, policy, before)
		if err != nil {
			return nil, fmt.Errorf("template of sandbox %s/%s: %w", sb.Namespace, sb.Name, err)
		}
		template.noteKeys(next, before)
		if changed = !template.same; changed {
			next.Spec.Template = &runtime.RawExtension{Raw: template.raw}
			if nextGeneration(next) {
				next.Status.UpdateRevision = template.revision
			}
		}
	}
	if !changed && maps.Equal(sb.Labels, next.Labels) && maps.Equal(sb.Annotations, next.Annotations) {
		return nil, nil
	}
	return next, nil
}

// replaced returns labels or annotations in which the keys that a claim put there before
// are replaced by what it says now.
func replaced(have map[string]string, put []string, now map[string]string) map[string]string {
	next := merged(have, nil)
	for _, key := range put {
		delete(next, key)
	}
	maps.Copy(next, now)
	return next
}

// Refuses returns why a pod template does not take the claim's additionalPodMetadata; nil
// if it does. What cannot be read is for others to find.
func (m *Marks) Refuses(template *runtime.RawExtension) *RefusedError {
	additional := v1alpha1.AdditionalPodMetadataOf(&m.claim.Spec)
	if template == nil || len(additional.Labels)+len(additional.Annotations) == 0 {
		return nil
	}
	_, err := m.mergedTemplate(template.Raw, &v1alpha1.PodMetadataPolicy{}, claimKeys{}, func(string) {})
	return MetadataRefusal(err)
}

// MetadataRefusal returns the refusal among the causes of an error that says that a pod
// template does not take additionalPodMetadata; nil if there is none.
func MetadataRefusal(err error) *RefusedError {
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Reason == v1alpha1.ReasonInvalidMetadata {
		return refused
	}
	return nil
}

// template returns the pod template with the claim's metadata in it. before lists the keys
// that the claim has put into it already; "" is none.
func (m *Marks) template(raw []byte, policy *v1alpha1.PodMetadataPolicy, before string) (boundTemplate, error) {
	of := poolTemplate{string(raw), policy, before}
	if done, ok := m.templates[of]; ok {
		return done, nil
	}
	done, err := m.mergedTemplate(raw, policy, keysIn(before), func(key string) { m.heldBack.Insert(key) })
	if err != nil {
		return boundTemplate{}, err
	}
	if done.revision, err = podtemplate.TemplateRevision(&runtime.RawExtension{Raw: done.raw}); err != nil {
		return boundTemplate{}, err
	}
	m.templates[of] = done
	return done, nil
}

// mergedTemplate puts what the policy lets through of the claim's metadata into a
// template, which keeps its own, and takes out what the claim has put there and does not
// say any more. heldBack is called with the fields that are not let through.
func (m *Marks) mergedTemplate(
	raw []byte, policy *v1alpha1.PodMetadataPolicy, before claimKeys, heldBack func(field string),
) (boundTemplate, error) {
	beforeMeta, rawMeta, afterMeta, isCanonical := podtemplate.CutMetadata(raw)
	var template map[string]json.RawMessage
	if !isCanonical {
		if err := json.Unmarshal(raw, &template); err != nil {
			return boundTemplate{}, err
		}
		rawMeta = template["metadata"]
	}
	var meta map[string]json.RawMessage
	if rawMeta != nil {
		if err := json.Unmarshal(rawMeta, &meta); err != nil {
			return boundTemplate{}, fmt.Errorf("metadata: %w", err)
		}
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	labels, annotations := m.podKeys(before)
	same := true
	var conflicts field.ErrorList
	for _, part := range []*podKeys{labels, annotations} {
		if err := part.mergeInto(meta, policy); err != nil {
			return boundTemplate{}, err
		}
		same, conflicts = same && part.same, append(conflicts, part.conflicts...)
		for _, held := range part.heldBack {
			heldBack(held)
		}
	}
	if len(conflicts) > 0 {
		return boundTemplate{}, refusedMetadata(conflicts)
	}
	bound := boundTemplate{raw: raw, same: same, none: len(labels.put)+len(annotations.put) == 0}
	var err error
	if bound.keys, err = (claimKeys{Labels: labels.put, Annotations: annotations.put}).encode(); err != nil || same {
		return bound, err
	}
	if rawMeta, err = json.Marshal(meta); err != nil {
		return boundTemplate{}, err
	}
	if isCanonical {
		bound.raw = slices.Concat(beforeMeta, rawMeta, afterMeta)
		return bound, nil
	}
	template["metadata"] = rawMeta
	bound.raw, err = json.Marshal(template)
	return bound, err
}

// podKeys are the labels or annotations of a pod template, as name says, and what a claim
// has to say of them.
type podKeys struct {
	name string
	// brings are those that are also on the sandbox, additional those that are not, and
	// marks what the system writes.
	brings, additional, marks map[string]string
	// before are the keys that are the claim's already.
	before []string
	// excepted are keys that the claim may bring although platforms act on them.
	excepted []string

	// put are the keys that the claim has put there in the end, sorted, and heldBack the
	// fields of the claim that do not get there.
	put, heldBack []string
	// conflicts are the keys of additional that the template sets to another value.
	conflicts field.ErrorList
	// same reports whether nothing changes.
	same bool
}

// podKeys returns what the claim has to say of labels and annotations of pod templates.
func (m *Marks) podKeys(before claimKeys) (labels, annotations *podKeys) {
	spec := &m.claim.Spec
	additional := v1alpha1.AdditionalPodMetadataOf(spec)
	onPods := maps.Clone(spec.Annotations)
	maps.DeleteFunc(onPods, func(key, _ string) bool { // what is for the sandbox alone
		return strings.HasPrefix(key, v1alpha1.KeyPrefix) || strings.HasPrefix(key, v1alpha1.E2BKeyPrefix)
	})
	labels = &podKeys{
		name: "labels", brings: spec.Labels, additional: additional.Labels, before: before.Labels,
		marks: map[string]string{v1alpha1.LabelOwner: string(m.claim.UID)},
	}
	annotations = &podKeys{name: "annotations", brings: onPods, additional: additional.Annotations, before: before.Annotations}
	if v1alpha1.OfAgentSandbox(m.claim) {
		annotations.excepted = []string{v1alpha1.AnnotationSafeToEvict}
	}
	return labels, annotations
}

// mergeInto puts the keys into the metadata of a template, as far as policy lets them.
func (k *podKeys) mergeInto(meta map[string]json.RawMessage, policy *v1alpha1.PodMetadataPolicy) error {
	k.same = true
	if len(k.brings)+len(k.additional)+len(k.marks)+len(k.before) == 0 {
		return nil
	}
	var have map[string]string
	if raw, ok := meta[k.name]; ok {
		if err := json.Unmarshal(raw, &have); err != nil {
			return fmt.Errorf("metadata.%s: %w", k.name, err)
		}
	}
	own := merged(have, nil)
	for _, key := range k.before {
		delete(own, key)
	}
	k.findConflicts(own)
	all := merged(k.brings, k.additional)
	passes, heldBack := claims.PodMetadata(all, own, claims.AllowedKeys(policy, k.name), k.excepted...)
	for _, key := range heldBack {
		if value, has := have[key]; has && value == all[key] && slices.Contains(k.before, key) {
			passes[key] = value // no change, so nothing that a policy could keep out
			continue
		}
		k.holdBack(key)
	}
	for key := range passes {
		if _, is := own[key]; !is {
			k.put = append(k.put, key)
		}
	}
	slices.Sort(k.put)
	next := merged(merged(own, passes), k.marks)
	if k.same = maps.Equal(have, next); k.same {
		return nil
	}
	raw, err := json.Marshal(next)
	meta[k.name] = raw
	return err
}

// findConflicts compares what is additional with what the template says by itself.
func (k *podKeys) findConflicts(own map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(k.additional)) {
		if value, set := own[key]; set && value != k.additional[key] {
			k.conflicts = append(k.conflicts, field.Forbidden(additionalPath.Child(k.name).Key(key), "the pod template sets it to another value"))
		}
	}
}

var additionalPath = field.NewPath("spec", "additionalPodMetadata")

// holdBack notes by which fields the claim brings a key that does not get to the pod.
func (k *podKeys) holdBack(key string) {
	if _, is := k.brings[key]; is {
		k.heldBack = append(k.heldBack, field.NewPath("spec", k.name).Key(key).String())
	}
	if _, is := k.additional[key]; is {
		k.heldBack = append(k.heldBack, additionalPath.Child(k.name).Key(key).String())
	}
}

// maxConflicts is how many conflicts a message names.
const maxConflicts = 3

// refusedMetadata is the refusal of a claim for keys that its pod template sets otherwise.
func refusedMetadata(conflicts field.ErrorList) *RefusedError {
	reasons := make([]string, 0, maxConflicts)
	for _, conflict := range conflicts[:min(len(conflicts), maxConflicts)] {
		reasons = append(reasons, conflict.Error())
	}
	why := strings.Join(reasons, "; ")
	if more := len(conflicts) - len(reasons); more > 0 {
		why += fmt.Sprintf("; and %d more", more)
	}
	return &RefusedError{Reason: v1alpha1.ReasonInvalidMetadata, Message: v1alpha1.InvalidMetadataMessage(why), Conflict: true, Errors: conflicts}
}
