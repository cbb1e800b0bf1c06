// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"
)

func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const inTrace = `{"traceparent":"` + parent + `"}`
	for name, tc := range map[string]struct{ value, want string }{
		"none":                 {"", ""},
		"parent":               {inTrace, inTrace},
		"state":                {`{"tracestate":"a=1","traceparent":"` + parent + `"}`, `{"traceparent":"` + parent + `","tracestate":"a=1"}`},
		"other keys":           {`{"baggage":"secret=1","traceparent":"` + parent + `"}`, inTrace},
		"long state":           {`{"traceparent":"` + parent + `","tracestate":"` + strings.Repeat("a", maxTraceState+1) + `"}`, inTrace},
		"odd state":            {`{"traceparent":"` + parent + `","tracestate":"a=\n"}`, inTrace},
		"no JSON":              {parent, ""},
		"no parent":            {`{"tracestate":"a=1"}`, ""},
		"parent of other text": {`{"traceparent":"` + parent + `; rm"}`, ""},
		"parent is no text":    {`{"traceparent":1}`, ""},
		"too long":             {`{"traceparent":"` + parent + `","x":"` + strings.Repeat("x", maxTraceContext) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TraceContext(tc.value); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
