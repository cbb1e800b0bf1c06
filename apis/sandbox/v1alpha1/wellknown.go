// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefixes of the keys that the system writes.
const (
	// KeyPrefix is the prefix of the contract's own keys.
	KeyPrefix = "agents.kruise.io/"
	// SandboxKeyPrefix is the prefix of a few keys about the make-up of a sandbox.
	SandboxKeyPrefix = "sandbox.agents.kruise.io/"
	// E2BKeyPrefix is the prefix of the keys of the E2B front end.
	E2BKeyPrefix = "e2b.agents.kruise.io/"
	// SandlotKeyPrefix is the prefix of keys that only Sandlot knows.
	SandlotKeyPrefix = "sandlot.io/"
)

// Labels of a Sandbox.
const (
	// LabelSandboxPool is the name of the SandboxSet that made the sandbox.
	LabelSandboxPool = KeyPrefix + "sandbox-pool"
	// LabelSandboxTemplate is the name of the set, or of the template that the set
	// refers to; also on the pod, from its birth, and immutable. A name that is too
	// long for a label is cut, and ends in a hash of it.
	LabelSandboxTemplate = KeyPrefix + "sandbox-template"
	// LabelSandboxClaimed is "true" or "false". It is there for selectors; whether a
	// sandbox belongs to a pool is said by its owner reference alone.
	LabelSandboxClaimed = KeyPrefix + "sandbox-claimed"
	// LabelClaimName is the name of the claim that took the sandbox.
	LabelClaimName = KeyPrefix + "claim-name"
	// LabelClaimedBy is on a claimed sandbox what ClaimedByLabel makes of the name of the
	// user who created the claim, to select by. AnnotationClaimedBy has the name.
	LabelClaimedBy = SandlotKeyPrefix + "claimed-by"
	// LabelTemplateHash is the revision of the set that the sandbox was made from.
	// A sandbox made for a claim, past the pool, has none.
	LabelTemplateHash = KeyPrefix + "template-hash"
	// LabelReservedFailedSandbox is "true" on a failed sandbox kept for debugging.
	LabelReservedFailedSandbox = KeyPrefix + "reserved-failed-sandbox"
	// LabelAllowInternetAccess is "true" or "false", on the pod as well.
	LabelAllowInternetAccess = KeyPrefix + "allow-internet-access"
	// LabelSandboxID is the short id of the sandbox in the E2B API.
	LabelSandboxID = KeyPrefix + "sandbox-id"
	// LabelUpdateOps is the bookkeeping of a bulk update.
	LabelUpdateOps = KeyPrefix + "update-ops"
	// LabelUpgradeFailed marks a sandbox whose bulk update failed.
	LabelUpgradeFailed = KeyPrefix + "upgrade-failed"
)

// Labels of a sandbox's Pod.
const (
	// LabelPodTemplateHash is status.updateRevision of the sandbox.
	LabelPodTemplateHash = "pod-template-hash"
	// LabelCreatedBy is CreatedBySandbox; an annotation of the same key is set too. It
	// is also on the other objects of the cluster that are made for ours.
	LabelCreatedBy = KeyPrefix + "created-by"
	// LabelOwner is the UID of the claim that holds the sandbox.
	LabelOwner = KeyPrefix + "owner"
	// LabelSandboxName is the name of the sandbox.
	LabelSandboxName = KeyPrefix + "sandbox-name"
	// LabelAgentRuntime is AgentRuntimeTrue on the pod of a sandbox that has an
	// agent-runtime, from its birth: the NetworkPolicy AgentRuntimesPolicy selects by it.
	LabelAgentRuntime = SandlotKeyPrefix + "agent-runtime"
)

// Annotations of a Sandbox that a claim writes.
const (
	// AnnotationLock is a UUID. A sandbox that has it is not to be taken by others.
	AnnotationLock = KeyPrefix + "lock"
	// AnnotationOwner is the UID of the claim, or OwnerScaleDown.
	AnnotationOwner = KeyPrefix + "owner"
	// AnnotationClaimTimestamp is the time of the claim in RFC 3339.
	AnnotationClaimTimestamp = KeyPrefix + "claim-timestamp"
	// AnnotationInitRuntimeRequest is the request that set up the agent-runtime.
	AnnotationInitRuntimeRequest = KeyPrefix + "init-runtime-request"
	// AnnotationRuntimeAccessToken is the token of the agent-runtime.
	AnnotationRuntimeAccessToken = KeyPrefix + "runtime-access-token"
	// AnnotationUpdatedMetadataInClaim lists the labels and annotations that the
	// claim added, so that they can be taken away again.
	AnnotationUpdatedMetadataInClaim = KeyPrefix + "updated-metadata-in-claim"
	// AnnotationStarting is "true" on a sandbox that a claim holds but does not
	// count yet: one that was made for it and is not ready, one that is being changed in
	// place for it, one whose agent-runtime is being set up, or one of a claim that takes
	// all or nothing and has not got all. Until it counts, the claim is its controller, so
	// that it goes with a claim that is deleted.
	AnnotationStarting = SandlotKeyPrefix + "starting"
	// AnnotationMounting is the server that has volumes mounted into a sandbox that is
	// starting or resumed: its name, and after a slash what identifies its work on the claim. It
	// is written before the first of the calls, which are made once.
	AnnotationMounting = SandlotKeyPrefix + "mounting"
	// AnnotationInplaceUpdate says what of its pod template a sandbox is given in place for
	// the claim: JSON, {"image":true,"cpu":true}. Until the sandbox counts it also says what resources
	// the template gave before.
	AnnotationInplaceUpdate = SandlotKeyPrefix + "inplace-update"
	// AnnotationPoolUID is the UID of the SandboxSet from whose pool the sandbox was
	// taken. One that was made for a claim, past the pool, has none.
	AnnotationPoolUID = SandlotKeyPrefix + "pool-uid"
	// AnnotationRuntimeKeyVersion is the version of the key for agent-runtimes with which the
	// request that set up the agent-runtime is encrypted, and from which its access token is
	// derived: a decimal number. A sandbox without it uses the oldest version that there is.
	AnnotationRuntimeKeyVersion = SandlotKeyPrefix + "runtime-key-version"
	// AnnotationRuntimeTokenID is on a sandbox whose agent-runtime got its access token in its
	// pool: what beside the sandbox's UID that token is derived from. It is the version of the
	// key for agent-runtimes, a slash, and what tells the pod from all others that the sandbox
	// has in pools. Claims keep it, and the token with it.
	AnnotationRuntimeTokenID = SandlotKeyPrefix + "runtime-token-id"
	// AnnotationClaimedBy is the name of the user who created the claim, on the claim and
	// on the sandboxes that it has taken.
	AnnotationClaimedBy = SandlotKeyPrefix + "claimed-by"
	// AnnotationClaimedByIdentity is the user who created the claim, on a claim that is not
	// Completed and that no other user has changed: sandboxes that are made for it in the
	// background are admitted as made by that user. It is JSON: user is a UserInfo of
	// authentication.k8s.io/v1, and the claim's UID is a hash of it and of salt. It is {} for a
	// user who cannot be recorded in full; nothing is made in the background then.
	AnnotationClaimedByIdentity = SandlotKeyPrefix + "claimed-by-identity"
)

// Other annotations of a Sandbox.
const (
	// AnnotationRuntimeURL is the base URL of the agent-runtime.
	AnnotationRuntimeURL = KeyPrefix + "runtime-url"
	// AnnotationRuntimeTLSPort is the port of an agent-runtime that speaks TLS.
	AnnotationRuntimeTLSPort = KeyPrefix + "runtime-tls-port"
	// AnnotationCleanupEnabled is "true" where the sandbox may be recycled.
	AnnotationCleanupEnabled = KeyPrefix + "cleanup-enabled"
	// AnnotationCleanup is "true" where the sandbox is to be recycled: cleaned, and given
	// back to its pool. It is taken away when that has ended in any way.
	AnnotationCleanup = KeyPrefix + "cleanup"
	// AnnotationCleanupRetainOnFailure is how long to keep a sandbox that could not
	// be recycled; see CleanupRetention.
	AnnotationCleanupRetainOnFailure = KeyPrefix + "cleanup-retain-on-failure"
	// AnnotationReservePausedSandboxDuration is how long a paused sandbox is kept.
	AnnotationReservePausedSandboxDuration = KeyPrefix + "reserve-paused-sandbox-duration"
	// AnnotationRestoreFrom is the id of the checkpoint that the sandbox came from.
	AnnotationRestoreFrom = KeyPrefix + "restore-from"
	// AnnotationSandboxPriority is an integer, default 0; see PriorityClaimed.
	AnnotationSandboxPriority = KeyPrefix + "sandbox-priority"
	// AnnotationUpgradeResumeTrigger starts the second phase of an upgrade.
	AnnotationUpgradeResumeTrigger = KeyPrefix + "upgrade-resume-trigger"
	// AnnotationMemberlistURL is the peer address of an E2B manager.
	AnnotationMemberlistURL = KeyPrefix + "memberlist-url"
	// AnnotationSandboxID is a reference to a sandbox by its short id.
	AnnotationSandboxID = KeyPrefix + "sandbox-id"
	// AnnotationCreatedBy is CreatedBySandbox, on the pod.
	AnnotationCreatedBy = KeyPrefix + "created-by"
	// AnnotationRevisionReused is, on a SandboxTemplate that holds a revision of a set,
	// when the set last came back to it (RFC 3339). It only orders what is kept.
	AnnotationRevisionReused = SandlotKeyPrefix + "revision-reused"
	// AnnotationTemplateMetadata lists the labels and annotations that a pod has
	// from the template of its sandbox, so that one that is no longer in the
	// template can be distinguished from one that others put there. On the pod.
	AnnotationTemplateMetadata = SandlotKeyPrefix + "template-metadata"
	// AnnotationInplaceUpdateState is the state of an update in place, on the pod.
	AnnotationInplaceUpdateState = KeyPrefix + "inplace-update-state"
	// AnnotationHashImmutablePart is the hash of what cannot change in place.
	AnnotationHashImmutablePart = SandboxKeyPrefix + "hash-immutable-part"
	// AnnotationHashWithoutImageResources is the older key of the same.
	AnnotationHashWithoutImageResources = SandboxKeyPrefix + "hash-without-image-resources"
	// AnnotationE2BPrewarmStrategy with the value none on a claim, or among the
	// annotations that it puts on its sandboxes, stands for warmPool none.
	AnnotationE2BPrewarmStrategy = E2BKeyPrefix + "prewarm-strategy"
	// AnnotationE2BCSIVolumeConfig lists the volumes mounted into the sandbox.
	AnnotationE2BCSIVolumeConfig = E2BKeyPrefix + "csi-volume-config"
	// AnnotationE2BEnvdAccessToken is the older key of the runtime's token.
	AnnotationE2BEnvdAccessToken = E2BKeyPrefix + "envd-access-token"
	// AnnotationE2BEnvdURL is the older key of the runtime's URL.
	AnnotationE2BEnvdURL = E2BKeyPrefix + "envd-url"
)

// AnnotationMountNamespaces lists, on a PersistentVolume of the cluster, the namespaces
// whose claims may mount it into their sandboxes, separated by commas; "*" is all.
const AnnotationMountNamespaces = SandlotKeyPrefix + "mount-namespaces"

// AnnotationMountAttributes lists, on a PersistentVolume of the cluster, the attributes that
// claims may add when they mount it, separated by commas; "*" is all. Case does not matter.
// Without it they may add none: many drivers take the server, the directory or the options of a
// mount from attributes, so who sets them chooses what is mounted.
const AnnotationMountAttributes = SandlotKeyPrefix + "mount-attributes"

// FinalizerSandbox holds a paused sandbox until its pod is gone.
const FinalizerSandbox = KeyPrefix + "sandbox"

// FinalizerPool holds a SandboxSet that is deleted in the foreground until the
// sandboxes of its pool are gone. Their owner references could do that, if they
// blocked the owner's deletion; then the garbage collector would ask for the set
// whenever a claim takes one away.
const FinalizerPool = "sandlot.io/pool"

// Values of the keys above.
const (
	// CleanupTrue is the value of AnnotationCleanupEnabled and AnnotationCleanup that counts.
	CleanupTrue = "true"
	// ClaimedTrue is the value of LabelSandboxClaimed on a claimed sandbox.
	ClaimedTrue = "true"
	// ClaimedFalse is the value of LabelSandboxClaimed on a sandbox in a pool.
	ClaimedFalse = "false"
	// CreatedBySandbox is the value of LabelCreatedBy on what is made for a sandbox.
	CreatedBySandbox = "sandbox"
	// CreatedByTemplate is the value of LabelCreatedBy on what is made for a
	// SandboxTemplate.
	CreatedByTemplate = "sandbox-template"
	// CreatedByAgentRuntimes is the value of LabelCreatedBy on AgentRuntimesPolicy.
	CreatedByAgentRuntimes = "agent-runtimes"
	// AgentRuntimeTrue is the value of LabelAgentRuntime.
	AgentRuntimeTrue = "true"
	// OwnerScaleDown is the value of AnnotationOwner on a sandbox that its set is
	// about to delete.
	OwnerScaleDown = "__manager_scale_down"
	// PriorityClaimed is the value of AnnotationSandboxPriority on a sandbox made
	// for a claim: someone waits for it.
	PriorityClaimed = "100"
)

// AgentRuntimesPolicy is the name of the NetworkPolicy that each namespace has for its pods
// with LabelAgentRuntime.
const AgentRuntimesPolicy = "sandlot-agent-runtimes"

// RetainPausedForever is the value of AnnotationReservePausedSandboxDuration for a
// sandbox that is kept as long as it is paused.
const RetainPausedForever = "forever"

// forever is what OpenKruise Agents takes for it.
const forever = 100 * 365 * 24 * time.Hour

// PausedRetention reads a value of AnnotationReservePausedSandboxDuration: how
// long a sandbox is kept after it was paused by itself. Empty is 0, which says
// nothing about it.
func PausedRetention(value string) (time.Duration, error) {
	switch value {
	case "":
		return 0, nil
	case RetainPausedForever:
		return forever, nil
	}
	retention, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("must be %q or a duration such as 24h: %w", RetainPausedForever, err)
	}
	if retention <= 0 {
		return 0, fmt.Errorf("must be %q or a positive duration such as 24h", RetainPausedForever)
	}
	return retention, nil
}

// MaxCleanupRetention is the longest time for which a sandbox is kept that could not be
// recycled.
const MaxCleanupRetention = 7 * 24 * time.Hour

// CleanupRetention reads a value of AnnotationCleanupRetainOnFailure: how long a sandbox
// is kept that could not be recycled, at most MaxCleanupRetention. What is no positive
// duration is 0: the sandbox is deleted at once.
func CleanupRetention(value string) time.Duration {
	retention, err := time.ParseDuration(value)
	if err != nil {
		return 0
	}
	return min(max(retention, 0), MaxCleanupRetention)
}

// TemplateLabel is the value of LabelSandboxTemplate for the template of a
// name: the name, or where it is too long for a label its beginning and a hash.
func TemplateLabel(name string) string { return fit(name, validation.LabelValueMaxLength) }

// NetworkPolicyName is the name of the NetworkPolicy of a SandboxTemplate.
func NetworkPolicyName(template string) string {
	return fit(template, validation.DNS1123SubdomainMaxLength-len(policySuffix)) + policySuffix
}

// TemplateOfNetworkPolicy is the name of the SandboxTemplate of which a NetworkPolicy has
// the name, if that was not cut.
func TemplateOfNetworkPolicy(policy string) string { return strings.TrimSuffix(policy, policySuffix) }

const policySuffix = "-network-policy"

// hashLength is how much of a hash stands for what was cut off: 48 bits.
const hashLength = 12

// fit cuts the name of an object that is longer than limit, and makes it end in a
// hash of the whole name instead: two long names differ at their ends as a rule.
func fit(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	head := strings.TrimRight(name[:limit-hashLength-1], "-.")
	return head + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// ClaimedByLabel returns the value of LabelClaimedBy for the name of a user: 32 hex digits
// of its SHA-256, because names of users need not fit into a label.
func ClaimedByLabel(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}
