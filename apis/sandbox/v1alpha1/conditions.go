// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a SandboxClaim. Completed and TimedOut are OpenKruise's;
// Ready is for those who wait as they would for a single sandbox.
const (
	// ClaimConditionCompleted is true when nothing more will be claimed.
	ClaimConditionCompleted = "Completed"
	// ClaimConditionTimedOut is true when claimTimeout was reached.
	ClaimConditionTimedOut = "TimedOut"
	// ClaimConditionReady is true when all wanted sandboxes are claimed and usable.
	ClaimConditionReady = "Ready"
	// ClaimConditionInplaceUpdate is true when the claimed sandboxes that had less cpu
	// or memory than the template, or not what inplaceUpdate says, were changed in place,
	// and false when some could not be, or are not yet. It is there only if there were any.
	ClaimConditionInplaceUpdate = "InplaceUpdate"
	// ClaimConditionFinished is true when the claimed sandboxes have ended. It is there
	// only then, and ttlSecondsAfterFinished counts from its transition.
	ClaimConditionFinished = "Finished"
)

// Reasons of SandboxClaim conditions. Clients compare them.
const (
	// ReasonAllReplicasClaimed goes with Completed and Ready true.
	ReasonAllReplicasClaimed = "AllReplicasClaimed"
	// ReasonClaimTimeoutReached goes with TimedOut true.
	ReasonClaimTimeoutReached = "ClaimTimeoutReached"
	// ReasonTimeoutReached goes with Completed true, and with Ready false, after a
	// timeout.
	ReasonTimeoutReached = "TimeoutReached"
	// ReasonSandboxSetNotFound goes with Completed true when the set never came.
	ReasonSandboxSetNotFound = "SandboxSetNotFound"
	// ReasonSandboxTemplateNotFound goes with Completed true when the template that
	// the claim refers to never came.
	ReasonSandboxTemplateNotFound = "SandboxTemplateNotFound"
	// ReasonWarmPoolMismatch goes with Completed true when the set that the claim
	// names as its warm pool has sandboxes of another template.
	ReasonWarmPoolMismatch = "WarmPoolMismatch"
	// ReasonEnvVarsInjectionRejected goes with Completed true when the template does not
	// let the claim add its env.
	ReasonEnvVarsInjectionRejected = "EnvVarsInjectionRejected"
	// ReasonVolumeClaimTemplatesRejected goes with Completed true when the template does
	// not let the claim add its volumeClaimTemplates.
	ReasonVolumeClaimTemplatesRejected = "VolumeClaimTemplatesRejected"
	// ReasonInplaceUpdateRejected goes with Completed true when the inplaceUpdate of the
	// claim makes no pod of what it can only have fresh sandboxes of.
	ReasonInplaceUpdateRejected = "InplaceUpdateRejected"
	// ReasonTooLarge goes with Completed true when the sandboxes do not fit into one
	// transaction, as the claim demands, or not even one of them does.
	ReasonTooLarge = "TooLarge"
	// ReasonTooManyFailures goes with Completed true when so many sandboxes failed while
	// they were prepared that the claim gets no others.
	ReasonTooManyFailures = "TooManyFailures"
	// ReasonRuntimeInitFailed goes with Completed true when no runtime of its sandboxes
	// can be set up for the claim, whichever sandbox it is.
	ReasonRuntimeInitFailed = "RuntimeInitFailed"
	// ReasonMountFailed goes with Completed true when the volumes of the claim cannot be
	// mounted, whichever sandbox it is.
	ReasonMountFailed = "MountFailed"
	// ReasonInvalidMetadata goes with Completed true when additionalPodMetadata gives
	// another value to a key of the pod template.
	ReasonInvalidMetadata = "InvalidMetadata"
	// ReasonClaimExpired goes with Ready false when the claim's lifecycle is over.
	ReasonClaimExpired = "ClaimExpired"
	// ReasonSandboxMissing goes with Ready false when a claimed sandbox does not exist, and
	// with Finished true of a claim of the E2B API whose sandbox does not exist any more.
	ReasonSandboxMissing = "SandboxMissing"
	// ReasonSandboxNotReady goes with Ready false when a claimed sandbox is not ready and
	// does not say why.
	ReasonSandboxNotReady = "SandboxNotReady"
	// ReasonPodSucceeded goes with Finished true when all claimed sandboxes succeeded, and
	// with Ready false of a sandbox that did.
	ReasonPodSucceeded = "PodSucceeded"
	// ReasonPodFailed goes with Finished true when a claimed sandbox failed, and with Ready
	// false of a sandbox whose pod failed and does not say why.
	ReasonPodFailed = "PodFailed"
)

// Condition types of a SandboxSet.
const (
	// SetConditionTemplateResolved is there on sets that refer to a template. It is
	// true when the pod template was found, patched and is valid; while it is false,
	// the pool stays at the last one that was.
	SetConditionTemplateResolved = "TemplateResolved"
	// SetConditionTemplateAccepted reports whether the cluster takes pods of the current
	// revision: true when it took one, in a dry run or in earnest, and unknown while
	// it could not be asked, refused them for reasons that may pass, or had something
	// to warn of. It is there in clusters only.
	SetConditionTemplateAccepted = "TemplateAccepted"
	// SetConditionAvailable is true while the pool has a sandbox that can be claimed, or
	// is meant to have none. While it is false and sandboxes cannot start, the message says
	// how many, and why the first of them.
	SetConditionAvailable = "Available"
	// SetConditionScalingLimited is true while the sandboxes that fail to start use up
	// scaleStrategy.maxUnavailable. If that is not set, it is true while all unused sandboxes
	// fail to start. An autoscaler should not raise replicas while it is true.
	SetConditionScalingLimited = "ScalingLimited"
	// SetConditionRolledOut is true when all sandboxes of the pool are of the current
	// revision and available, and stays so until the spec or the revision changes: claims
	// that take sandboxes away do not change it.
	SetConditionRolledOut = "RolledOut"
	// SetConditionReplicaFailure is true while the pool cannot be kept as it should be, and
	// absent otherwise. Name and meaning are those of ReplicaSets.
	SetConditionReplicaFailure = "ReplicaFailure"
)

// Reasons of the condition ScalingLimited of a SandboxSet.
const (
	// ReasonStartupBudgetAvailable goes with ScalingLimited false.
	ReasonStartupBudgetAvailable = "StartupBudgetAvailable"
	// ReasonStartupBudgetExhausted goes with ScalingLimited true.
	ReasonStartupBudgetExhausted = "StartupBudgetExhausted"
)

// Reasons of the conditions Available and RolledOut of a SandboxSet.
const (
	// ReasonSandboxesAvailable goes with Available true.
	ReasonSandboxesAvailable = "SandboxesAvailable"
	// ReasonNoSandboxesWanted goes with Available true of a set that wants no sandboxes.
	ReasonNoSandboxesWanted = "NoSandboxesWanted"
	// ReasonSandboxesStarting goes with Available false while sandboxes are started and
	// nothing is known to be in their way.
	ReasonSandboxesStarting = "SandboxesStarting"
	// ReasonSandboxesCannotStart goes with Available false when sandboxes cannot start, or
	// cannot be made. Another one may be tried.
	ReasonSandboxesCannotStart = "SandboxesCannotStart"
	// ReasonRolledOut goes with RolledOut true.
	ReasonRolledOut = "RolledOut"
	// ReasonRollingOut goes with RolledOut false while sandboxes of the current revision
	// are made.
	ReasonRollingOut = "RollingOut"
)

// Reasons of the condition TemplateAccepted of a SandboxSet.
const (
	// ReasonAccepted goes with TemplateAccepted true.
	ReasonAccepted = "Accepted"
	// ReasonWarned goes with TemplateAccepted unknown. The message has the warnings.
	ReasonWarned = "Warned"
)

// Reasons of the condition TemplateResolved of a SandboxSet, and, except for the
// first, of Ready false of a sandbox that waits for its template.
const (
	// ReasonResolved goes with TemplateResolved true.
	ReasonResolved = "Resolved"
	// ReasonTemplateNotFound means that a reference leads nowhere.
	ReasonTemplateNotFound = "TemplateNotFound"
	// ReasonTemplateCycle means that references go round in a circle.
	ReasonTemplateCycle = "TemplateCycle"
	// ReasonTemplateKindWrong means that a reference names no kind of template.
	ReasonTemplateKindWrong = "TemplateKindWrong"
	// ReasonInvalidPatch means that the set's patch does not fit the template.
	ReasonInvalidPatch = "InvalidPatch"
	// ReasonInvalidTemplate means that what comes out is no valid pod template.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonTemplateNameTaken means that the SandboxTemplate that was to hold the
	// revision of a set belongs to another owner, or has other content.
	ReasonTemplateNameTaken = "TemplateNameTaken"
)

// Condition types of a Sandbox.
const (
	// SandboxConditionReady copies the readiness of the pod.
	SandboxConditionReady = "Ready"
	// SandboxConditionPaused is true when a pause is complete.
	SandboxConditionPaused = "SandboxPaused"
	// SandboxConditionResumed is true when a resume is complete.
	SandboxConditionResumed = "SandboxResumed"
	// SandboxConditionInplaceUpdate says how an update in place went.
	SandboxConditionInplaceUpdate = "InplaceUpdate"
	// SandboxConditionImageUpdated says if an update in place that was to change the image
	// did so, once that is known: a failed InplaceUpdate may be about the cpu alone.
	SandboxConditionImageUpdated = "ImageUpdated"
	// SandboxConditionSchedulingGated is true while the pod waits behind a scheduling gate,
	// and false since the gates were removed. A sandbox whose pod had none does not have it.
	SandboxConditionSchedulingGated = "SchedulingGated"
	// SandboxConditionRuntimeInitialized reports whether the agent-runtime was set up for
	// the claim. While a sandbox is resumed it is about the new pod, and the sandbox is
	// Resuming for as long as it is False/Pending. After a restart of a container the sandbox is
	// not Ready for as long. In a pool it reports whether the
	// agent-runtime has an access token, and the sandbox is not available while it is False.
	SandboxConditionRuntimeInitialized = "RuntimeInitialized"
	// SandboxConditionVolumesMounted reports whether the dynamicVolumesMount of the
	// claim were mounted, after a resume into the new pod.
	SandboxConditionVolumesMounted = "VolumesMounted"
	// SandboxConditionRecycling says how the return to the pool goes. It is true when the
	// sandbox is back.
	SandboxConditionRecycling = "Recycling"
)

// Reasons of the condition Ready of a Sandbox.
const (
	// ReasonPodReady goes with either status: the condition follows the pod.
	ReasonPodReady = "PodReady"
	// ReasonRuntimeRestarted means that the pod is ready, and that a container of it was restarted, so
	// that its agent-runtime is set up again.
	ReasonRuntimeRestarted = "RuntimeRestarted"
	// ReasonContainerRestarted means that the pod is ready, and that a container of it was restarted a
	// moment ago. A sandbox that no one uses yet is not ready then, because it may end again.
	ReasonContainerRestarted = "ContainerRestarted"
	// ReasonInplaceUpdating means that an update in place runs.
	ReasonInplaceUpdating = "InplaceUpdating"
	// ReasonInplaceReverting goes with the condition InplaceUpdate and means that the node does not
	// resize the pod, and that what the pod was asked to have is taken back.
	ReasonInplaceReverting = "InplaceReverting"
	// ReasonStartContainerFailed means that a container waits and cannot start.
	ReasonStartContainerFailed = "StartContainerFailed"
	// ReasonPodCreateFailed means that the API refused the pod, over a quota say.
	ReasonPodCreateFailed = "PodCreateFailed"
	// ReasonSchedulingGated means that the pod waits behind a scheduling gate.
	ReasonSchedulingGated = "SchedulingGated"
	// ReasonGatesRemoved means that the scheduling gates of the pod were removed.
	ReasonGatesRemoved = "GatesRemoved"
	// ReasonUnschedulable means that no node takes the pod. The message is the
	// scheduler's.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNodeLost means that the node of the pod is gone from the cluster. The pod may still run, or
	// not: its kubelet, which would report that, is gone as well.
	ReasonNodeLost = "NodeLost"
	// ReasonEvicted means that the kubelet evicted the pod, for want of memory say. It is
	// one of the reasons that a pod gives for its end itself; others are Preempting,
	// NodeShutdown, Terminated and DeadlineExceeded. The sandbox is Failed, as with
	// ReasonPodFailed, which goes with a pod that failed and does not say why.
	ReasonEvicted = "Evicted"
	// ReasonPodDeleted means that the pod is gone, or about to go, and does not say why. A
	// pod that does say why gives its own reason: EvictionByEvictionAPI,
	// PreemptionByScheduler, DeletionByTaintManager, DeletionByPodGC. The sandbox is Failed.
	ReasonPodDeleted = "PodDeleted"
	// ReasonRuntimeNotFound means that the installation has no runtime of a name in
	// spec.runtimes.
	ReasonRuntimeNotFound = "RuntimeNotFound"
	// ReasonInvalidRuntime means that what the installation has under the name of a
	// runtime cannot be put into the pod.
	ReasonInvalidRuntime = "InvalidRuntime"
)

// Reasons that several conditions of a Sandbox share.
const (
	// ReasonPending means that the work has not begun.
	ReasonPending = "Pending"
	// ReasonSucceeded means that the work is done.
	ReasonSucceeded = "Succeeded"
	// ReasonFailed means that the work failed.
	ReasonFailed = "Failed"
)

// Reasons of the conditions SandboxPaused and SandboxResumed.
const (
	// ReasonStopPauseSucceed means that the sandbox is paused and its pod is gone.
	ReasonStopPauseSucceed = "StopPauseSucceed"
	// ReasonCreatePod means that a resume makes the pod.
	ReasonCreatePod = "CreatePod"
)

// Reasons of the condition Recycling of a Sandbox.
const (
	// ReasonRecyclingStarted goes with Recycling false: the sandbox's pod is being deleted.
	ReasonRecyclingStarted = "RecyclingStarted"
	// ReasonRecyclingCompleted goes with Recycling false: the pod is gone, and nothing is
	// left of what was in the sandbox. It gets a new pod before it is back in its pool.
	ReasonRecyclingCompleted = "RecyclingCompleted"
	// ReasonRecyclingSucceeded goes with Recycling true: the sandbox can be claimed again.
	ReasonRecyclingSucceeded = "RecyclingSucceeded"
	// ReasonRecyclingFailed goes with Recycling false when the sandbox cannot go back to a
	// pool.
	ReasonRecyclingFailed = "RecyclingFailed"
	// ReasonRecyclingTimeout goes with Recycling false when that took too long.
	ReasonRecyclingTimeout = "RecyclingTimeout"
	// ReasonRecyclingRejected goes with Recycling false when the sandbox is not recycled
	// and continues as it is.
	ReasonRecyclingRejected = "RecyclingRejected"
)
