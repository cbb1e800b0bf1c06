// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package findings is what checks report: what was looked at, how it is, and what to do
// about it.
package findings

// Level is how bad a finding is.
type Level string

const (
	// OK is what is as it should be.
	OK Level = "OK"
	// NotLookedAt is what could not be looked at, and may be well or not.
	NotLookedAt Level = "NotLookedAt"
	// Warning is what works and should be seen to.
	Warning Level = "Warning"
	// Error is what does not work, or must not be.
	Error Level = "Error"
)

// Finding is one result of a check.
type Finding struct {
	// Level is how bad it is.
	Level Level `json:"level"`
	// Check is the name of the check, in CamelCase, for programs.
	Check string `json:"check"`
	// Objects are those that the finding is of, such as "SandboxClaim team-a/run-1". Where
	// there are many, the first of them.
	Objects []string `json:"objects,omitempty"`
	// Message is what was found.
	Message string `json:"message"`
	// Action is what to do; empty where nothing has to be done.
	Action string `json:"action,omitempty"`
}

// Count is how many of findings have a level.
func Count(all []Finding, level Level) int {
	n := 0
	for _, f := range all {
		if f.Level == level {
			n++
		}
	}
	return n
}
