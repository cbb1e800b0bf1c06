// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// A feature is something that a claim can have beside sandboxes that are ready, such as another
// image in them. It takes part in the plans of the claims that it applies to, as a plug-in of
// kube-scheduler does: it implements those of the interfaces below that it needs. They are listed
// in the order in which they are called: up to checker by Assess, the others by Next. What a
// feature has to do to a sandbox, and how far it is, is written on the sandbox, so any controller
// and any server can continue from there. A new feature is a file with a type and an entry in features.
type feature interface {
	// applies reports whether plans of the claim call the feature. found are the sandboxes of pools
	// that are to be bound; none before Next.
	applies(s *State, found []Candidate) bool
}

// features are in the order in which they are called.
var features = []feature{inPlaceUpdate{}, agentSandbox{}, runtimeSetup{}, e2bSandbox{}}

// progresser is a feature that decides when a sandbox counts.
type progresser interface {
	// progress returns how far a sandbox is that the claim holds and that is starting. before is how
	// far it is without the feature.
	progress(a *Assessment, sb *v1alpha1.Sandbox, before preparation) preparation
}

// releaser is a feature that changes sandboxes that failed.
type releaser interface {
	// release writes on a sandbox that the claim releases why it failed.
	release(a *Assessment, sb *v1alpha1.Sandbox, why *claims.SetupError)
}

// counter is a feature that changes sandboxes when they count: they are ready, and are in
// status.claimedReplicas from then on.
type counter interface {
	// count writes on a sandbox that it counts.
	count(a *Assessment, sb *v1alpha1.Sandbox)
}

// checker is a feature that decides by what the claim holds what it may have.
type checker interface {
	// check is called before sandboxes are looked for. onTheWay is how many the claim holds that may
	// come to count.
	check(a *Assessment, onTheWay int)
}

// cleaner is a feature that leaves something on sandboxes.
type cleaner interface {
	// clean removes what an earlier claim has left on a sandbox of a pool.
	clean(sb *v1alpha1.Sandbox)
}

// marker is a feature that says on each sandbox of the claim whose it is.
type marker interface {
	// mark writes labels and annotations on a sandbox. launch says whether it comes from a pool:
	// see v1alpha1.AgentLabelLaunchType.
	mark(claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox, launch string)
}

// binder is a feature that has something done to sandboxes that become the claim's.
type binder interface {
	// bind writes on the sandbox what has to be done before it counts.
	bind(a *Assessment, b *binding)
}

// binding is a sandbox that becomes the claim's.
type binding struct {
	sandbox *v1alpha1.Sandbox
	// candidate is what the sandbox was in its pool; nil if it was made for the claim.
	candidate *Candidate
	marks     *Marks
	// waits is set if something has to be done before the sandbox counts.
	waits bool
	// err is why the sandbox cannot be bound.
	err error
}

// reporter is a feature that adds something to the status of the claim.
type reporter interface {
	// report completes the status of the next state of the claim.
	report(a *Assessment, p *Plan)
}

// featuresOf returns the features that apply to a claim, see feature.
func featuresOf(s *State, found []Candidate) (applying []feature) {
	for _, f := range features {
		if f.applies(s, found) {
			applying = append(applying, f)
		}
	}
	return applying
}

// each calls f with the features that implement T.
func each[T any](all []feature, f func(T)) {
	for _, one := range all {
		if is, ok := one.(T); ok {
			f(is)
		}
	}
}

// progressOf returns how far a sandbox is that the claim holds and that is starting.
func progressOf(a *Assessment, sb *v1alpha1.Sandbox) preparation {
	o := preparation{progress: readiness(sb, a.State.Now)}
	each(a.features, func(f progresser) { o = f.progress(a, sb, o) })
	return o
}

// bindFeatures writes on a sandbox that becomes the claim's what its features have to do, and reports
// whether that is anything.
func bindFeatures(a *Assessment, m *Marks, sb *v1alpha1.Sandbox, c *Candidate) (waits bool, err error) {
	b := &binding{sandbox: sb, candidate: c, marks: m}
	each(a.features, func(f binder) { f.bind(a, b) })
	return b.waits, b.err
}
