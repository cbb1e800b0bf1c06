// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// runtimeSetup is the feature of sandboxes with an agent-runtime. It comes after the others: the server that works on the claim calls
// the agent-runtime of a sandbox that is ready, for the claim's envVars, the access token
// and the volumes to mount. How that went is in the memory of this server alone until a
// transaction counts or releases the sandbox; so a sandbox that counts was set up, and
// one that is starting is set up again by the server that works on the claim next. Mounts are
// different, because they must not run twice: see AnnotationMounting.
type runtimeSetup struct{}

var (
	_ progresser = runtimeSetup{}
	_ releaser   = runtimeSetup{}
	_ counter    = runtimeSetup{}
	_ checker    = runtimeSetup{}
	_ binder     = runtimeSetup{}
)

// applies is true for all claims: sandboxes say whether they have a runtime.
func (runtimeSetup) applies(*State, []Candidate) bool { return true }

func (runtimeSetup) progress(a *Assessment, sb *v1alpha1.Sandbox, before preparation) preparation {
	if before.progress != Done {
		return before
	}
	is, why := a.State.setupProgress(sb, a.runtimes)
	if is == Pending {
		why = notSetUp()
	}
	return preparation{is, why}
}

// beforeSetup returns how far a sandbox is that is set up after that.
func beforeSetup(sb *v1alpha1.Sandbox, now time.Time) Progress {
	return max(readiness(sb, now), updateProgress(sb))
}

// Setups is what a server knows of the agent-runtimes that it sets up for a claim.
type Setups struct {
	// Results are how that ended, by the UIDs of the sandboxes.
	Results map[types.UID]SetupResult
	// Mounting is the AnnotationMounting of this server's work on the claim. No volumes
	// are mounted while it is "".
	Mounting string
	// Servers are the names of the servers that live; nil where that is not known.
	Servers []string
	// LeftOut: no runtime is set up, because nothing will be written.
	LeftOut bool
}

// SetupResult is how setting up the runtime of a sandbox ended.
type SetupResult struct {
	// Failed is why it failed; nil if it is set up.
	Failed *claims.SetupError
}

// agentRuntimes remembers of pod templates whether they bring an agent-runtime: the
// sandboxes of a claim share theirs.
type agentRuntimes map[string]bool

// in reports whether a sandbox has an agent-runtime.
func (r agentRuntimes) in(sb *v1alpha1.Sandbox) bool {
	return podtemplate.NamesAgentRuntime(sb.Spec.Runtimes) || r.isBroughtBy(sb.Spec.Template)
}

// isBroughtBy reports whether a pod template brings an agent-runtime.
func (r agentRuntimes) isBroughtBy(template *runtime.RawExtension) bool {
	if template == nil {
		return false
	}
	brings, ok := r[string(template.Raw)]
	if !ok {
		brings = podtemplate.BringsAgentRuntime(template)
		r[string(template.Raw)] = brings
	}
	return brings
}

// asksForRuntime reports whether the claim sets up the runtime of a sandbox that it binds. With
// skipInitRuntime it does so only to give the runtime the token of its pool again.
func (s *State) asksForRuntime(sb *v1alpha1.Sandbox, known agentRuntimes) bool {
	return (claims.SetsUpRuntime(s.Claim) || mayLoseToken(sb)) && known.in(sb)
}

// mayLoseToken reports whether a sandbox whose runtime got a token in its pool is changed in place
// for the claim: that restarts the container, whose runtime has no token then.
func mayLoseToken(sb *v1alpha1.Sandbox) bool {
	return sb.Annotations[v1alpha1.AnnotationRuntimeTokenID] != "" &&
		meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionInplaceUpdate) != nil
}

// needsSetup reports whether a sandbox that the claim holds counts only when its runtime
// is set up: also where a client removed the condition that says so.
func (s *State) needsSetup(sb *v1alpha1.Sandbox, known agentRuntimes) bool {
	return meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized) != nil || s.asksForRuntime(sb, known)
}

// WithoutRuntime returns the pool of the first sandbox of an offer that has no
// agent-runtime; "" if all have one.
func WithoutRuntime(o *Offer) string {
	known := agentRuntimes{}
	for i := range o.Candidates {
		c := &o.Candidates[i]
		if !podtemplate.NamesAgentRuntime(c.Sandbox.Spec.Runtimes) && !known.isBroughtBy(c.Template) {
			return originOf(c.Sandbox)
		}
	}
	for _, sb := range o.Made {
		if !known.in(sb) {
			return originOf(sb)
		}
	}
	return ""
}

// originOf names what a sandbox was made from.
func originOf(sb *v1alpha1.Sandbox) string {
	if pool := sb.Labels[v1alpha1.LabelSandboxPool]; pool != "" {
		return "SandboxSet " + pool
	}
	if template := sb.Labels[v1alpha1.LabelSandboxTemplate]; template != "" {
		return "SandboxTemplate " + template
	}
	return "Sandbox " + sb.Name
}

// bind notes on a sandbox that becomes the claim's that its runtime has to be set up, if it has to.
func (runtimeSetup) bind(a *Assessment, b *binding) {
	sb, asked := b.sandbox, a.State.asksForRuntime(b.sandbox, a.runtimes)
	if !asked {
		b.marks.withoutRuntime(sb)
	}
	if a.State.Setups.LeftOut {
		return
	}
	// The token for the private ports of a sandbox of the E2B API is derived from the access
	// token, which it therefore has without an agent-runtime, too.
	if asked && claims.SetsUpRuntime(a.claim) || v1alpha1.IsE2BPrivate(sb) {
		if b.err = b.marks.noteKey(sb); b.err != nil {
			return
		}
	}
	if !asked {
		meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionRuntimeInitialized)
		meta.RemoveStatusCondition(&sb.Status.Conditions, v1alpha1.SandboxConditionVolumesMounted)
		return
	}
	if b.marks.request != "" && claims.SetsUpRuntime(a.claim) {
		sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] = b.marks.request
	}
	setupIs(a, sb, metav1.ConditionFalse, v1alpha1.ReasonPending, "")
	isReady := b.candidate != nil && !b.waits // so it can begin as soon as this is written
	if isReady && claims.Mounts(a.State.Claim) && a.State.Setups.Mounting != "" {
		sb.Annotations[v1alpha1.AnnotationMounting] = a.State.Setups.Mounting
	}
	b.waits = true
}

// setupIs sets the conditions of a sandbox that report its setup.
func setupIs(a *Assessment, sb *v1alpha1.Sandbox, status metav1.ConditionStatus, reason, message string) {
	setupConditionIs(sb, a.State.Now, v1alpha1.SandboxConditionRuntimeInitialized, status, reason, message)
	if claims.Mounts(a.State.Claim) {
		setupConditionIs(sb, a.State.Now, v1alpha1.SandboxConditionVolumesMounted, status, reason, message)
	}
}

func setupConditionIs(sb *v1alpha1.Sandbox, now time.Time, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	})
}

// setupProgress is how far the setup of a sandbox is that is ready, and
// why it failed if it did.
func (s *State) setupProgress(sb *v1alpha1.Sandbox, known agentRuntimes) (Progress, *claims.SetupError) {
	if !s.needsSetup(sb, known) {
		return Done, nil
	}
	if result, ended := s.Setups.Results[sb.UID]; ended {
		if result.Failed != nil {
			return Failed, result.Failed
		}
		return Done, nil
	}
	if s.hasLostMounts(sb) {
		return Failed, &claims.SetupError{
			Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed,
			Message: "the server that had its volumes mounted stopped before it could tell how that went",
		}
	}
	return Pending, nil
}

// hasLostMounts reports whether the mounts of a sandbox have begun, and no server is left that
// will know how they end.
func (s *State) hasLostMounts(sb *v1alpha1.Sandbox) bool {
	mark := sb.Annotations[v1alpha1.AnnotationMounting]
	if mark == "" || mark == s.Setups.Mounting || s.Setups.Servers == nil {
		return false
	}
	server, _, _ := strings.Cut(mark, "/")
	self, _, _ := strings.Cut(s.Setups.Mounting, "/")
	return server == self || !slices.Contains(s.Setups.Servers, server)
}

// Runtime identifies the agent-runtime of a sandbox, among those that it had before and will
// have: it is as old as the pod is ready and no container restarted.
type Runtime struct {
	podUID     types.UID
	podIP      string
	restarts   restarts
	readySince int64
}

// restarts are how often containers of a pod have been restarted, if that is known.
type restarts struct {
	count int32
	known bool
}

// RuntimeOf returns which agent-runtime a sandbox has.
func RuntimeOf(sb *v1alpha1.Sandbox) Runtime {
	is := Runtime{podUID: sb.Status.PodInfo.PodUID, podIP: sb.Status.PodInfo.PodIP}
	if count := sb.Status.PodInfo.RestartCount; count != nil {
		is.restarts = restarts{*count, true}
	}
	if ready := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady); ready != nil {
		is.readySince = ready.LastTransitionTime.Unix()
	}
	return is
}

// IsSame reports whether two runtimes are the same one, as far as is known: the status of a sandbox
// says how often containers were restarted only since a controller wrote it that knows the field.
func (r Runtime) IsSame(other Runtime) bool {
	if !r.restarts.known || !other.restarts.known {
		r.restarts, other.restarts = restarts{}, restarts{}
	}
	return r == other
}

// ToSetUp are the sandboxes of Held whose setup can begin, or continue, in the order of
// their names.
func (s *State) ToSetUp() []*v1alpha1.Sandbox {
	var all []*v1alpha1.Sandbox
	known := agentRuntimes{}
	for _, sb := range s.Held {
		if !isOnTheWay(sb) || beforeSetup(sb, s.Now) != Done || !s.needsSetup(sb, known) {
			continue
		}
		if progress, _ := s.setupProgress(sb, known); progress != Pending || !s.Now.Before(s.SetUpBy(sb)) {
			continue
		}
		mark := sb.Annotations[v1alpha1.AnnotationMounting]
		if mark == "" && !claims.Mounts(s.Claim) || mark != "" && mark == s.Setups.Mounting {
			all = append(all, sb)
		}
	}
	return all
}

// SetUpBy is until when the runtime of a sandbox has to be set up. That of a claim of
// agent-sandbox, which may have taken as long as it likes to start, has its time from now.
func (s *State) SetUpBy(sb *v1alpha1.Sandbox) time.Time {
	by := readyBy(s.Claim, sb)
	if fromNow := s.Now.Add(durationOr(s.Claim.Spec.WaitReadyTimeout, v1alpha1.DefaultWaitReadyTimeout)); !claims.TimesOut(s.Claim) && by.Before(fromNow) {
		by = fromNow
	}
	if end := Deadline(s.Claim, s.Start); end.Before(by) {
		return end
	}
	return by
}

// check notes on the sandboxes that this server is about to mount volumes into that it
// does, as far as they fit into the transaction.
func (runtimeSetup) check(a *Assessment, _ int) {
	if !claims.Mounts(a.State.Claim) || a.State.Setups.Mounting == "" {
		return
	}
	room := a.State.Room - len(a.held.released) - len(a.held.counted)
	for _, sb := range a.held.waiting {
		if len(a.held.marked) >= room {
			return
		}
		if beforeSetup(sb, a.State.Now) == Done && a.State.needsSetup(sb, a.runtimes) && sb.Annotations[v1alpha1.AnnotationMounting] == "" {
			next := shallowCopy(sb)
			next.Annotations[v1alpha1.AnnotationMounting] = a.State.Setups.Mounting
			a.held.marked = append(a.held.marked, next)
		}
	}
}

// count notes on a sandbox that it is set up, if it had to be.
func (runtimeSetup) count(a *Assessment, sb *v1alpha1.Sandbox) {
	delete(sb.Annotations, v1alpha1.AnnotationMounting)
	if a.State.needsSetup(sb, a.runtimes) {
		setupIs(a, sb, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
	}
}

// release notes on a sandbox why its setup failed.
func (runtimeSetup) release(a *Assessment, sb *v1alpha1.Sandbox, why *claims.SetupError) {
	if why == nil {
		return
	}
	message := claims.Cut(why.Message, claims.MaxFailureMessage)
	if why.Condition == v1alpha1.SandboxConditionVolumesMounted {
		setupConditionIs(sb, a.State.Now, v1alpha1.SandboxConditionRuntimeInitialized, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
		setupConditionIs(sb, a.State.Now, v1alpha1.SandboxConditionVolumesMounted, metav1.ConditionFalse, v1alpha1.ReasonFailed, message)
		return
	}
	setupConditionIs(sb, a.State.Now, v1alpha1.SandboxConditionRuntimeInitialized, metav1.ConditionFalse, v1alpha1.ReasonFailed, message)
}
