// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"regexp"
)

const (
	// maxTraceContext bounds what is read of a trace context, maxTraceState its part that
	// is free text: more need not be passed on, says W3C.
	maxTraceContext = 2048
	maxTraceState   = 512
)

var (
	traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	traceState  = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

// TraceContext returns a value of v1alpha1.AgentAnnotationTraceContext with traceparent and
// tracestate only, as they are written in a canonical form; "" if it is no W3C trace
// context. A tracestate that is too long, or has other than printable ASCII characters,
// is left out.
func TraceContext(value string) string {
	if value == "" || len(value) > maxTraceContext {
		return ""
	}
	var carried struct {
		Parent string `json:"traceparent"`
		State  string `json:"tracestate,omitempty"`
	}
	if err := json.Unmarshal([]byte(value), &carried); err != nil || !traceParent.MatchString(carried.Parent) {
		return ""
	}
	if len(carried.State) > maxTraceState || !traceState.MatchString(carried.State) {
		carried.State = ""
	}
	encoded, err := json.Marshal(carried)
	if err != nil {
		return ""
	}
	return string(encoded)
}
