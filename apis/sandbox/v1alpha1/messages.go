// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"
)

// The texts below are read by programs written for OpenKruise Agents, which has
// no other place to say how many sandboxes a claim got. They must not change.

// ClaimingMessage is the status message of a claim in progress.
func ClaimingMessage(claimed, desired int32) string {
	return fmt.Sprintf("Claiming sandboxes: %d/%d claimed", claimed, desired)
}

// ClaimedMessage is the status message of a claim that got all its sandboxes.
func ClaimedMessage(claimed, desired int32) string {
	return fmt.Sprintf("Successfully claimed %d/%d sandboxes", claimed, desired)
}

// ClaimedConditionMessage is the message of Completed for such a claim.
func ClaimedConditionMessage(claimed int32) string {
	return fmt.Sprintf("Successfully claimed all %d sandboxes", claimed)
}

// ClaimTimeoutMessage is the status message of a claim whose time is over.
func ClaimTimeoutMessage(elapsed time.Duration, claimed, desired int32) string {
	return fmt.Sprintf("Timeout reached after %s, claimed %d/%d sandboxes", elapsed, claimed, desired)
}

// ClaimTimeoutConditionMessage is the message of TimedOut for such a claim.
func ClaimTimeoutConditionMessage(elapsed time.Duration, claimed, desired int32) string {
	return fmt.Sprintf("Timeout after %s, claimed %d/%d", elapsed, claimed, desired)
}

// SandboxSetNotFoundMessage is the status message of a claim without its set. The
// namespace is not in OpenKruise's.
func SandboxSetNotFoundMessage(namespace, name string) string {
	return fmt.Sprintf("SandboxSet %s not found in namespace %s", name, namespace)
}

// SandboxTemplateNotFoundMessage is the status message of a claim without its
// template, which OpenKruise Agents has none for.
func SandboxTemplateNotFoundMessage(namespace, name string) string {
	return fmt.Sprintf("SandboxTemplate %s not found in namespace %s", name, namespace)
}

// EnvVarsInjectionRejectedMessage is the status message of a claim whose env the
// template does not take.
func EnvVarsInjectionRejectedMessage(why string) string {
	return "environment variable injection rejected: " + why
}

// VolumeClaimTemplatesRejectedMessage is the status message of a claim whose
// volumeClaimTemplates the template does not take.
func VolumeClaimTemplatesRejectedMessage(why string) string {
	return "volume claim templates rejected: " + why
}

// InplaceUpdatingMessage is the message of Ready and of InplaceUpdate while a
// sandbox is being changed in place.
const InplaceUpdatingMessage = "inplace update is incompleted"

// ResizeFailedMessage is the message of InplaceUpdate of a sandbox that could not be
// resized.
func ResizeFailedMessage(why string) string {
	return "in-place resource resize failed: " + why
}

// ImageUpdateFailedMessage is the message of InplaceUpdate of a sandbox that could not be
// given another image, where no container says why.
func ImageUpdateFailedMessage(why string) string {
	return "in-place image update failed: " + why
}

// InplaceUpdateRejectedMessage is the status message of a claim whose inplaceUpdate does
// not fit the pod template.
func InplaceUpdateRejectedMessage(why string) string {
	return "in-place update rejected: " + why
}
