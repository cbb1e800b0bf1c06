// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Marks is what one claim writes on each of its sandboxes. Every part of it is the
// same for all of them but the lock, so it is worked out once. It is not for
// concurrent use.
type Marks struct {
	claim       *v1alpha1.SandboxClaim
	features    []feature
	labels      map[string]string
	annotations map[string]string
	// templates remembers, by the template before and the policy, the template after: the
	// sandboxes of a pool share theirs.
	templates map[poolTemplate]boundTemplate
	// heldBack are the fields of the claim's metadata that are not in all of the pod
	// templates.
	heldBack sets.Set[string]
	// Seal returns what a sandbox keeps of how its runtime is set up, encrypted, and the
	// version of the key by which its runtime has an access token; nil is nothing.
	Seal func(*v1alpha1.SandboxClaim) (request, keyVersion string, err error)
	// request and keyVersion are what Seal returned, and sealed whether it was asked.
	request, keyVersion string
	sealed              bool
	// noRuntime are the pools of which sandboxes had no agent-runtime, which the claim
	// would set up.
	noRuntime sets.Set[string]
}

// poolTemplate is a pod template, and what it takes of a claim's metadata.
type poolTemplate struct {
	raw    string
	policy *v1alpha1.PodMetadataPolicy
	// before lists what the claim has put into it already; "" is nothing.
	before string
}

// NewMarks works out what a claim writes on its sandboxes. The fields are
// OpenKruise's, which other tools read (reference: its claim controller).
func NewMarks(claim *v1alpha1.SandboxClaim) (*Marks, error) {
	added, err := claimKeys{
		Labels: slices.Sorted(maps.Keys(claim.Spec.Labels)), Annotations: slices.Sorted(maps.Keys(claim.Spec.Annotations)),
	}.encode()
	if err != nil {
		return nil, err
	}
	m := &Marks{
		claim: claim, features: featuresOf(&State{Claim: claim}, nil),
		labels: merged(claim.Spec.Labels, map[string]string{
			v1alpha1.LabelClaimName:      claim.Name,
			v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue,
		}),
		annotations: merged(claim.Spec.Annotations, map[string]string{
			v1alpha1.AnnotationOwner:                  string(claim.UID),
			v1alpha1.AnnotationUpdatedMetadataInClaim: added,
		}),
		templates: map[poolTemplate]boundTemplate{},
		heldBack:  sets.Set[string]{},
		noRuntime: sets.Set[string]{},
	}
	if by := claim.Annotations[v1alpha1.AnnotationClaimedBy]; by != "" {
		m.labels[v1alpha1.LabelClaimedBy] = v1alpha1.ClaimedByLabel(by)
		m.annotations[v1alpha1.AnnotationClaimedBy] = cut(by, maxClaimedBy)
	}
	return m, nil
}

// maxClaimedBy is how many bytes of the name of a user stand on each sandbox. Names have
// no limit of their own.
const maxClaimedBy = 256

// cut cuts off what of a text is beyond a number of bytes, between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// HeldBack returns the fields of the claim's metadata, sorted, that are not on the pods of
// some of the sandboxes so far.
func (m *Marks) HeldBack() []string { return sets.List(m.heldBack) }

// WithoutRuntime returns what some of the sandboxes so far were made from, sorted, that
// have no agent-runtime, which the claim would have set up.
func (m *Marks) WithoutRuntime() []string { return sets.List(m.noRuntime) }

// withoutRuntime notes that a sandbox of the claim has no agent-runtime.
func (m *Marks) withoutRuntime(sb *v1alpha1.Sandbox) {
	if claims.SetsUpRuntime(m.claim) {
		m.noRuntime.Insert(originOf(sb))
	}
}

// noteKey notes on a sandbox which version of the key its access token is derived from. It
// works out what a sandbox keeps of how its runtime is set up, once for the claim.
func (m *Marks) noteKey(sb *v1alpha1.Sandbox) error {
	if !m.sealed && m.Seal != nil {
		var err error
		if m.request, m.keyVersion, err = m.Seal(m.claim); err != nil {
			return fmt.Errorf("sealing the request that sets up runtimes: %w", err)
		}
		m.sealed = true
	}
	if m.keyVersion != "" {
		sb.Annotations[v1alpha1.AnnotationRuntimeKeyVersion] = m.keyVersion
	}
	return nil
}

// claimCandidate returns what a candidate becomes when it is the claim's: locked, labelled,
// detached from its set and from the template that it referred to.
func (m *Marks) claimCandidate(c *Candidate, now time.Time) (*v1alpha1.Sandbox, error) {
	sb := shallowCopy(c.Sandbox)
	if sb.Spec.Template == nil {
		// The user of the sandbox depends neither on a template nor on a set any more.
		sb.Spec.TemplateRef = nil
	}
	sb.Spec.Template = c.Template
	each(features, func(f cleaner) { f.clean(sb) })
	if err := m.apply(sb, c.PodMetadata, c.Lock, v1alpha1.AgentLaunchWarm, c.changesPod(), now); err != nil {
		return nil, err
	}
	if pool := v1alpha1.PoolOf(c.Sandbox); pool != nil {
		sb.Annotations[v1alpha1.AnnotationPoolUID] = string(pool.UID)
	}
	return sb, nil
}

// NewSandbox returns a sandbox made for the claim like model, which is the claim's
// from birth, and counts when it is ready. policy says which of the claim's labels and
// annotations its pod has; nil is all. name and uid are what the generic store would fill
// in.
func (m *Marks) NewSandbox(model *v1alpha1.Sandbox, policy *v1alpha1.PodMetadataPolicy, name string, uid types.UID, lock string, now time.Time) (*v1alpha1.Sandbox, error) {
	sb := model.DeepCopy()
	sb.Name, sb.UID = name, uid
	sb.CreationTimestamp = metav1.NewTime(now)
	sb.Generation = 0 // apply counts up
	sb.Status = v1alpha1.SandboxStatus{}
	if err := m.apply(sb, policy, lock, v1alpha1.AgentLaunchCold, false, now); err != nil {
		return nil, err
	}
	sb.Status = podtemplate.StatusAtBirth(sb)
	setCounted(sb, m.claim, false)
	return sb, nil
}

// dated returns a copy of a sandbox that was made for a claim as one that becomes the claim's
// now: its transaction may come long after it was made. One from which admission took
// the date stays without.
func dated(sb *v1alpha1.Sandbox, now time.Time) *v1alpha1.Sandbox {
	next := shallowCopy(sb)
	if next.Annotations[v1alpha1.AnnotationClaimTimestamp] != "" {
		next.Annotations[v1alpha1.AnnotationClaimTimestamp] = now.UTC().Format(time.RFC3339)
	}
	return next
}

// apply makes sb the claim's, which must be a copy that the caller owns. launch is that of marker.
// changes says that the sandbox's controller has to change the pod.
func (m *Marks) apply(sb *v1alpha1.Sandbox, policy *v1alpha1.PodMetadataPolicy, lock, launch string, changes bool, now time.Time) error {
	sb.OwnerReferences = nil
	sb.Labels = merged(sb.Labels, m.labels)
	sb.Annotations = merged(sb.Annotations, m.annotations)
	delete(sb.Labels, v1alpha1.AgentLabelPool)
	each(m.features, func(f marker) { f.mark(m.claim, sb, launch) })
	sb.Annotations[v1alpha1.AnnotationLock] = lock
	sb.Annotations[v1alpha1.AnnotationClaimTimestamp] = now.UTC().Format(time.RFC3339)
	if t := m.claim.Spec.ShutdownTime; t != nil {
		sb.Spec.ShutdownTime, sb.Spec.PauseTime = wholeSeconds(t), nil
	}
	if t := m.claim.Spec.PauseTime; t != nil {
		sb.Spec.PauseTime = wholeSeconds(t)
	}
	observed := false // the template always changes: it names the owner
	if changes {
		sb.Generation++
	} else {
		observed = nextGeneration(sb)
	}
	if sb.Spec.Template == nil {
		return nil
	}
	template, err := m.template(sb.Spec.Template.Raw, policy, "")
	if err != nil {
		return fmt.Errorf("template of sandbox %s/%s: %w", sb.Namespace, sb.Name, err)
	}
	template.noteKeys(sb, "")
	sb.Spec.Template = &runtime.RawExtension{Raw: template.raw}
	if observed {
		// Spares the sandbox's controller a write for each claim.
		sb.Status.UpdateRevision = template.revision
	}
	return nil
}

func wholeSeconds(t *metav1.Time) *metav1.Time {
	whole := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &whole
}

// nextGeneration counts up the generation, and with it what its controller had
// observed. A claim changes metadata alone, which leaves a running sandbox as ready as
// it was; without this, kubectl wait and all who compare generations would take it for
// not ready until its controller has come by. It reports whether the status was up to
// date, and so is kept that way.
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

// setCounted sets whether a sandbox that the claim holds counts. With Retain one that
// counts has no owner, so that deleting or expiring the claim never deletes it.
func setCounted(sb *v1alpha1.Sandbox, claim *v1alpha1.SandboxClaim, counts bool) {
	if counts {
		delete(sb.Annotations, v1alpha1.AnnotationStarting)
	} else {
		sb.Annotations[v1alpha1.AnnotationStarting] = "true"
	}
	sb.OwnerReferences = slices.DeleteFunc(sb.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == claim.UID })
	if !counts || claim.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		owner := metav1.NewControllerRef(claim, v1alpha1.ClaimKind(claim))
		sb.OwnerReferences = append(sb.OwnerReferences, *owner)
	}
}

// IsStarting reports whether a sandbox that a claim holds does not count yet.
func IsStarting(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationStarting] == "true"
}

// Release returns a sandbox as it is released when its claim is gone: due to be shut down.
func Release(sb *v1alpha1.Sandbox, now time.Time) *v1alpha1.Sandbox { return release(sb, false, now) }

// release returns a sandbox that the claim does not use as it is released: kept for debugging with reserve,
// else no longer the claim's and due to be shut down.
func release(sb *v1alpha1.Sandbox, reserve bool, now time.Time) *v1alpha1.Sandbox {
	owner := sb.Annotations[v1alpha1.AnnotationOwner]
	sb = shallowCopy(sb)
	sb.OwnerReferences = slices.DeleteFunc(sb.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == owner })
	delete(sb.Annotations, v1alpha1.AnnotationStarting)
	if reserve {
		sb.Labels = merged(sb.Labels, map[string]string{v1alpha1.LabelReservedFailedSandbox: "true"})
		if sb.Spec.ShutdownTime != nil || sb.Spec.PauseTime != nil { // it is kept until a user deletes it
			sb.Spec.ShutdownTime, sb.Spec.PauseTime = nil, nil
			sb.Generation++
		}
		return sb
	}
	delete(sb.Annotations, v1alpha1.AnnotationOwner)
	delete(sb.Annotations, v1alpha1.AnnotationClaimedBy)
	delete(sb.Labels, v1alpha1.LabelClaimName)
	delete(sb.Labels, v1alpha1.LabelClaimedBy)
	delete(sb.Labels, v1alpha1.LabelSandboxID)
	delete(sb.Labels, v1alpha1.AgentLabelClaimUID)
	delete(sb.Annotations, v1alpha1.AgentAnnotationTraceContext)
	shutdown := metav1.NewTime(now.Truncate(time.Second))
	sb.Spec.ShutdownTime = &shutdown
	if v1alpha1.KeptAtShutdown(sb) {
		sb.Spec.ShutdownPolicy = v1alpha1.ShutdownDelete
	}
	sb.Generation++
	return sb
}

// shallowCopy returns a copy of which everything that this package changes is its
// own; the rest is shared.
func shallowCopy(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	next := *sb
	next.Labels = maps.Clone(sb.Labels)
	next.Annotations = maps.Clone(sb.Annotations)
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.OwnerReferences = slices.Clone(sb.OwnerReferences)
	next.Status.Conditions = slices.Clone(sb.Status.Conditions)
	return &next
}

// merged returns a new map with the entries of base and, over them, of more.
func merged(base, more map[string]string) map[string]string {
	all := make(map[string]string, len(base)+len(more))
	maps.Copy(all, base)
	maps.Copy(all, more)
	return all
}
