// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

// SetupError says why what a claim asks for could not be brought into the runtime of one
// of its sandboxes. Nothing in it is secret: it is reported in statuses and events.
type SetupError struct {
	// Condition is the condition of the sandbox that reports it:
	// SandboxConditionRuntimeInitialized or SandboxConditionVolumesMounted.
	Condition string
	// Reason is that of the claim's conditions, if the claim ends because of it:
	// ReasonRuntimeInitFailed or ReasonMountFailed.
	Reason string
	// Message is what happened, to what, and what to do.
	Message string
	// Hopeless reports whether every other sandbox would fail in the same way, so that
	// none is tried in its place.
	Hopeless bool
}

// Error implements error.
func (e *SetupError) Error() string { return e.Message }
