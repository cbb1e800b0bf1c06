// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SandboxClaim asks for sandboxes. The request that creates it binds them: the
// answer already lists the sandboxes, in one transaction with the claim itself.
// A claim is a one-off order: sandboxes deleted after they were claimed are not
// replaced.
// +genclient
// +genclient:method=Release,verb=create,subresource=release,input=github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1.SandboxClaimRelease,result=github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1.SandboxClaimRelease
// +genclient:method=RuntimeAccess,verb=create,subresource=runtimeaccess,input=github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1.SandboxClaimRuntimeAccess,result=github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1.SandboxClaimRuntimeAccess
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaim struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata. The name has at most 63 characters,
	// because it is also the value of a label on every claimed sandbox.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec says how many sandboxes are wanted, from which pool, and what to do
	// when there are not enough.
	// +required
	Spec SandboxClaimSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`

	// status says what has been claimed.
	// +optional
	Status SandboxClaimStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// SandboxClaimSpec says how many sandboxes are wanted, from which pool, and what
// to do when there are not enough.
type SandboxClaimSpec struct {
	// templateName is the name of a SandboxSet in the same namespace, whose
	// sandboxes are claimed. With no set of that name, it stands for the
	// SandboxTemplate of that name, as in sandboxTemplateRef. Neither need exist yet.
	// Exactly one of templateName and sandboxTemplateRef is required. It may be changed
	// until the claim is Completed, for the sandboxes that it gets from then on.
	// +optional
	TemplateName string `json:"templateName,omitempty" protobuf:"bytes,1,opt,name=templateName"`

	// sandboxTemplateRef claims by SandboxTemplate instead of by SandboxSet. The sets
	// that refer to the template serve the claim together: those without a patch
	// first, then those with the most available sandboxes. A SandboxSet without a
	// templateRef counts as one of a template of its own name. With no such set,
	// sandboxes are made straight from the template. Exactly one of templateName and
	// sandboxTemplateRef is required. It may be changed until the claim is Completed.
	// +optional
	SandboxTemplateRef *SandboxClaimTemplateRef `json:"sandboxTemplateRef,omitempty" protobuf:"bytes,2,opt,name=sandboxTemplateRef"`

	// warmPoolRef claims from the SandboxSet of a name and from no other: with no such set
	// the claim waits for it. It stands in place of templateName; beside
	// sandboxTemplateRef the set has to refer to that template. It may be changed until
	// the claim is Completed.
	// +optional
	WarmPoolRef *SandboxClaimWarmPoolRef `json:"warmPoolRef,omitempty" protobuf:"bytes,3,opt,name=warmPoolRef"`

	// replicas is the number of sandboxes to claim, from 1 to 10000, and with
	// allocation AllOrNothing at most 127. Immutable. Default 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,4,opt,name=replicas"`

	// allocation says whether a part of the wanted sandboxes is of use: BestEffort
	// binds what there is, AllOrNothing binds all of them in one transaction or
	// none. Default BestEffort.
	// +optional
	Allocation AllocationPolicy `json:"allocation,omitempty" protobuf:"bytes,5,opt,name=allocation,casttype=AllocationPolicy"`

	// onShortage says what to do when the pool holds too few sandboxes: Wait for
	// more until claimTimeout, or Fail the create with status 429 and store nothing.
	// Default Wait. Immutable once the claim is Completed.
	// +optional
	OnShortage ShortagePolicy `json:"onShortage,omitempty" protobuf:"bytes,6,opt,name=onShortage,casttype=ShortagePolicy"`

	// createOnNoStock makes fresh sandboxes for what the pool lacks, instead of
	// waiting for the pool, up to the maxFreshSandboxes of the set or template. Default true, except with onShortage Fail, where it is
	// false: who wants to fail on a shortage means a shortage of warm sandboxes.
	// With warmPool none it must be true. Immutable once the claim is Completed.
	// +optional
	CreateOnNoStock *bool `json:"createOnNoStock,omitempty" protobuf:"varint,7,opt,name=createOnNoStock"`

	// warmPool says which pools may serve the claim: default (all that match), none
	// (always fresh sandboxes), or the name of one SandboxSet, which must be one of
	// those. Default "default", or "none" with env or volumeClaimTemplates, for which it
	// has to be that, and with the annotation
	// e2b.agents.kruise.io/prewarm-strategy: none. Immutable once the claim is Completed.
	// +optional
	WarmPool string `json:"warmPool,omitempty" protobuf:"bytes,8,opt,name=warmPool"`

	// reclaimPolicy says what becomes of the sandboxes when the claim goes: Retain
	// leaves them alone; with Delete the claim owns them, and they go with it,
	// also when ttlAfterCompleted removes it. Default Retain.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty" protobuf:"bytes,9,opt,name=reclaimPolicy,casttype=ReclaimPolicy"`

	// claimTimeout is how long a claim may wait for sandboxes, counted from
	// status.claimStartTime. When it is over, the claim is Completed with what it
	// has. At least 1s, at most what the server's --max-claim-timeout says (24h unless
	// changed). Default 1m.
	// +optional
	ClaimTimeout *metav1.Duration `json:"claimTimeout,omitempty" protobuf:"bytes,10,opt,name=claimTimeout"`

	// ttlAfterCompleted is how long the claim is kept after it is Completed; a
	// negative value keeps it for ever. Its sandboxes are not touched, unless
	// reclaimPolicy is Delete. Default 60m, or with a lifecycle for ever.
	// +optional
	TTLAfterCompleted *metav1.Duration `json:"ttlAfterCompleted,omitempty" protobuf:"bytes,11,opt,name=ttlAfterCompleted"`

	// waitReadyTimeout is how long a sandbox made or changed for this claim may take
	// to become ready. At least 1s, at most what the server's --max-wait-ready-timeout
	// says (1h unless changed). Default 30s.
	// +optional
	WaitReadyTimeout *metav1.Duration `json:"waitReadyTimeout,omitempty" protobuf:"bytes,12,opt,name=waitReadyTimeout"`

	// shutdownTime is when the claimed sandboxes are deleted. It is copied to
	// spec.shutdownTime of every claimed sandbox, in whole seconds. A claim that still
	// lacks sandboxes then ends, as at its claimTimeout. Unset leaves the sandboxes' own
	// shutdown and pause times as they are.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty" protobuf:"bytes,13,opt,name=shutdownTime"`

	// pauseTime is when the claimed sandboxes are paused. It is copied to spec.pauseTime of
	// every claimed sandbox, in whole seconds, and must be before shutdownTime. Unset means
	// never where shutdownTime is set, and else leaves the sandboxes' own pause times as
	// they are. Added by Sandlot.
	// +optional
	PauseTime *metav1.Time `json:"pauseTime,omitempty" protobuf:"bytes,14,opt,name=pauseTime"`

	// labels are put on every claimed sandbox, on its pod template and on its pod.
	// Keys that the system writes itself, under agents.kruise.io,
	// e2b.agents.kruise.io and sandlot.io, are refused. Together with annotations and
	// additionalPodMetadata at most 64 keys of 8 KiB. A change reaches sandboxes and pods
	// that are claimed already: status.observedGeneration says when.
	// +optional
	// +mapType=granular
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,15,rep,name=labels"`

	// annotations are put on every claimed sandbox and, except for keys under
	// agents.kruise.io and e2b.agents.kruise.io, on its pod template. Keys that the
	// system writes itself are refused. Together with labels and additionalPodMetadata at
	// most 64 keys of 8 KiB. A change reaches sandboxes and pods that are claimed already.
	// +optional
	// +mapType=granular
	Annotations map[string]string `json:"annotations,omitempty" protobuf:"bytes,16,rep,name=annotations"`

	// envVars are environment variables handed to the agent-runtime of each claimed
	// sandbox, for the processes that it starts. Sandboxes without an agent-runtime do
	// without. At most 256, of 32 KiB in all. Immutable.
	// +optional
	// +mapType=granular
	EnvVars map[string]string `json:"envVars,omitempty" protobuf:"bytes,17,rep,name=envVars"`

	// env are environment variables put into the containers of the pod, as far as the
	// envVarsInjectionPolicy of the SandboxTemplate allows that the claim, or the set it
	// names, refers to. A running pod cannot take them, so they need fresh sandboxes. At
	// most 256, of 32 KiB in all. Immutable.
	// +optional
	// +listType=atomic
	Env []SandboxClaimEnvVar `json:"env,omitempty" protobuf:"bytes,18,rep,name=env"`

	// additionalPodMetadata is put on the pods of the claimed sandboxes, and not on the
	// sandboxes, as far as the podMetadataPolicy lets it. A key that the pod template sets
	// to another value is refused rather than overridden. Keys of kubernetes.io, k8s.io and
	// agents.x-k8s.io are refused, and those that the system or platforms act on. Counts
	// with labels and annotations. A change reaches pods that are claimed already.
	// +optional
	AdditionalPodMetadata *PodMetadata `json:"additionalPodMetadata,omitempty" protobuf:"bytes,19,opt,name=additionalPodMetadata"`

	// volumeClaimTemplates are PersistentVolumeClaims made for each claimed sandbox,
	// as far as the template's volumeClaimTemplatesPolicy allows. They need fresh
	// sandboxes. At most 16. Immutable.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty" protobuf:"bytes,20,rep,name=volumeClaimTemplates"`

	// inplaceUpdate changes image or cpu of the first container of each claimed sandbox
	// without a new pod; sandboxes made for the claim are made with them. An edit is for
	// the sandboxes that the claim gets from then on, and changes nothing on a claim that
	// is Completed.
	// +optional
	InplaceUpdate *SandboxClaimInplaceUpdateOptions `json:"inplaceUpdate,omitempty" protobuf:"bytes,21,opt,name=inplaceUpdate"`

	// dynamicVolumesMount are volumes that the agent-runtime of each claimed sandbox
	// mounts, in this order, after it was initialized. A sandbox counts when all are
	// mounted. null means none. At most 16, of 16 KiB in all. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	DynamicVolumesMount []CSIMountConfig `json:"dynamicVolumesMount,omitempty" protobuf:"bytes,22,rep,name=dynamicVolumesMount"`

	// runtimes is accepted for compatibility and has no effect on claiming: what
	// runs in a sandbox is said by the SandboxSet.
	// +optional
	// +listType=atomic
	Runtimes []RuntimeConfig `json:"runtimes,omitempty" protobuf:"bytes,23,rep,name=runtimes"`

	// skipInitRuntime leaves out the initialization of the agent-runtime: no envVars, and
	// no access token but that of the pool. It goes not together with dynamicVolumesMount.
	// Immutable.
	// Default false.
	// +optional
	SkipInitRuntime bool `json:"skipInitRuntime,omitempty" protobuf:"varint,24,opt,name=skipInitRuntime"`

	// reserveFailedSandbox keeps a sandbox that was made or changed for this claim
	// and failed, for debugging, under the label
	// agents.kruise.io/reserved-failed-sandbox and without times to pause or shut down.
	// Otherwise it is deleted.
	// Default false.
	// +optional
	ReserveFailedSandbox bool `json:"reserveFailedSandbox,omitempty" protobuf:"varint,25,opt,name=reserveFailedSandbox"`

	// lifecycle says when the claim itself ends, and what becomes of its sandboxes
	// then. Unset means never, apart from ttlAfterCompleted. It can be changed until the
	// claim has expired.
	// +optional
	Lifecycle *SandboxClaimLifecycle `json:"lifecycle,omitempty" protobuf:"bytes,26,opt,name=lifecycle"`
}

// SandboxClaimTemplateRef names the SandboxTemplate to claim by.
type SandboxClaimTemplateRef struct {
	// name of a SandboxTemplate in the same namespace.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// SandboxClaimWarmPoolRef names a SandboxSet.
type SandboxClaimWarmPoolRef struct {
	// name is the name of a SandboxSet in the same namespace. It need not exist yet.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// SandboxClaimEnvVar is an environment variable for one container.
type SandboxClaimEnvVar struct {
	// name of the variable.
	// +required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// value of the variable.
	// +required
	Value string `json:"value" protobuf:"bytes,2,opt,name=value"`

	// containerName is the container, or init container, that gets the variable.
	// Empty means the first container.
	// +optional
	ContainerName string `json:"containerName,omitempty" protobuf:"bytes,3,opt,name=containerName"`
}

// PodMetadata is metadata for the pods of sandboxes.
type PodMetadata struct {
	// labels to add to the pod.
	// +optional
	// +mapType=granular
	Labels map[string]string `json:"labels,omitempty" protobuf:"bytes,1,rep,name=labels"`

	// annotations to add to the pod.
	// +optional
	// +mapType=granular
	Annotations map[string]string `json:"annotations,omitempty" protobuf:"bytes,2,rep,name=annotations"`
}

// SandboxClaimInplaceUpdateOptions change a sandbox while its pod is there. At least one
// of image and resources is required.
type SandboxClaimInplaceUpdateOptions struct {
	// image is the new image of the first container, which is restarted with it. At most
	// 1024 characters, without spaces around it. A sandbox that cannot run it does not
	// count, and another one takes its place.
	// +optional
	Image string `json:"image,omitempty" protobuf:"bytes,1,opt,name=image"`

	// resources are the new resources of the first container. A sandbox that cannot be
	// given them counts all the same, as it is; its condition InplaceUpdate and that of
	// the claim say why.
	// +optional
	Resources *SandboxClaimInplaceUpdateResources `json:"resources,omitempty" protobuf:"bytes,2,opt,name=resources"`
}

// SandboxClaimInplaceUpdateResources are resources for the first container. Only
// cpu is applied, be it more or less than before, and only where the container already
// sets it, requests and limits each for itself. It must be greater than 0. Other
// resources, such as memory, are ignored with a warning.
type SandboxClaimInplaceUpdateResources struct {
	// requests are the new resource requests.
	// +optional
	// +mapType=granular
	Requests corev1.ResourceList `json:"requests,omitempty" protobuf:"bytes,1,rep,name=requests,casttype=k8s.io/api/core/v1.ResourceList,castkey=k8s.io/api/core/v1.ResourceName"`

	// limits are the new resource limits.
	// +optional
	// +mapType=granular
	Limits corev1.ResourceList `json:"limits,omitempty" protobuf:"bytes,2,rep,name=limits,casttype=k8s.io/api/core/v1.ResourceList,castkey=k8s.io/api/core/v1.ResourceName"`
}

// CSIMountConfig is a volume to mount into a running sandbox.
type CSIMountConfig struct {
	// mountID identifies the mount to the storage driver, which gets it as the attribute
	// mountID.
	// +optional
	MountID string `json:"mountID,omitempty" protobuf:"bytes,1,opt,name=mountID"`

	// pvName is the name of the PersistentVolume to mount. It must be of a CSI driver, and
	// bound to a PersistentVolumeClaim of the namespace, or have the annotation
	// sandlot.io/mount-namespaces that lists the namespace.
	// +required
	PvName string `json:"pvName" protobuf:"bytes,2,opt,name=pvName"`

	// mountPath is the absolute path inside the sandbox. One volume a path. Not "/", and
	// nothing of the system, such as /proc.
	// +required
	MountPath string `json:"mountPath" protobuf:"bytes,3,opt,name=mountPath"`

	// subPath is the folder of the volume to mount, a relative path without "..". The
	// storage driver gets it as the attribute subPath. Empty means its root.
	// +optional
	SubPath string `json:"subPath,omitempty" protobuf:"bytes,4,opt,name=subPath"`

	// readOnly mounts the volume read-only. Default false.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty" protobuf:"varint,5,opt,name=readOnly"`

	// attributes are handed to the storage driver as they are, beside those of the
	// PersistentVolume, of which they may change none. Only attributes that its annotation
	// sandlot.io/mount-attributes lists may be set.
	// +optional
	// +mapType=granular
	Attributes map[string]string `json:"attributes,omitempty" protobuf:"bytes,6,rep,name=attributes"`
}

// SandboxClaimLifecycle says when a claim ends. It ends at the earlier of
// shutdownTime and ttlSecondsAfterFinished. Its condition Ready is then False with the
// reason ClaimExpired, for good.
type SandboxClaimLifecycle struct {
	// shutdownTime is when the claim ends, in whole seconds. It is not copied to the
	// sandboxes. A claim that is still being claimed ends with what it has.
	// +optional
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty" protobuf:"bytes,1,opt,name=shutdownTime"`

	// ttlSecondsAfterFinished ends the claim so many seconds after its condition
	// Finished became true. 0 means at once. Unset means never.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty" protobuf:"varint,2,opt,name=ttlSecondsAfterFinished"`

	// shutdownPolicy says what happens at the end: Delete removes the claim and
	// its sandboxes; DeleteForeground does so, and the claim stays visible until the
	// sandboxes and their pods are gone; Retain removes the sandboxes and keeps the
	// claim. Sandboxes that failed and are kept for debugging stay. Default Retain.
	// +optional
	ShutdownPolicy ShutdownPolicy `json:"shutdownPolicy,omitempty" protobuf:"bytes,3,opt,name=shutdownPolicy,casttype=ShutdownPolicy"`
}

// AllocationPolicy says whether a part of the wanted sandboxes is of use.
// +enum
type AllocationPolicy string

const (
	// AllocationBestEffort binds the sandboxes there are, and continues for the rest.
	AllocationBestEffort AllocationPolicy = "BestEffort"
	// AllocationAllOrNothing binds all sandboxes in one transaction, or none.
	AllocationAllOrNothing AllocationPolicy = "AllOrNothing"
)

// ShortagePolicy says what to do when the pool holds too few sandboxes.
// +enum
type ShortagePolicy string

const (
	// ShortageWait waits for sandboxes until the claim's timeout.
	ShortageWait ShortagePolicy = "Wait"
	// ShortageFail refuses the create with status 429 and stores nothing.
	ShortageFail ShortagePolicy = "Fail"
)

// ReclaimPolicy says what becomes of the sandboxes when their claim goes.
// +enum
type ReclaimPolicy string

const (
	// ReclaimRetain leaves the sandboxes alone.
	ReclaimRetain ReclaimPolicy = "Retain"
	// ReclaimDelete deletes the sandboxes with the claim.
	ReclaimDelete ReclaimPolicy = "Delete"
)

// ShutdownPolicy says what happens when a claim's lifecycle ends.
// +enum
type ShutdownPolicy string

const (
	// ShutdownDelete removes the claim and its sandboxes.
	ShutdownDelete ShutdownPolicy = "Delete"
	// ShutdownDeleteForeground does too, and shows the claim until they are gone.
	ShutdownDeleteForeground ShutdownPolicy = "DeleteForeground"
	// ShutdownRetain removes the sandboxes and keeps the claim.
	ShutdownRetain ShutdownPolicy = "Retain"
)

// The values of spec.warmPool that are not the name of a SandboxSet.
const (
	// WarmPoolDefault lets every pool that matches serve the claim.
	WarmPoolDefault = "default"
	// WarmPoolNone lets no pool serve the claim: its sandboxes are always fresh.
	WarmPoolNone = "none"
)

// SandboxClaimList is a list of claims.
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type SandboxClaimList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items are the claims.
	Items []SandboxClaim `json:"items" protobuf:"bytes,2,rep,name=items"`
}
