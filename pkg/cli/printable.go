// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"
	"unicode"

	"k8s.io/cli-runtime/pkg/printers"
)

// printable is a text that comes from a server or another user, for a terminal. What is not printed is escaped,
// so that it can neither control the terminal nor have the text look like another one: control characters, and
// those that change the direction of a text or have no width. Lines stay.
func printable(text string) string {
	var b strings.Builder
	for _, r := range printers.EscapeTerminal(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
