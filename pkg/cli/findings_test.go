// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// TestFindingsForPeople: what others have written does nothing to a terminal but to be shown.
func TestFindingsForPeople(t *testing.T) {
	for text, want := range map[string]string{
		"plain “text”, ü 漢":             "plain “text”, ü 漢",
		"two\nlines\tand  a tab\r":      "two lines and a tab",
		"\x1b[2J\x1b]0;title\x07":       "�[2J�]0;title�",
		"\u009b31m":                     "�31m",
		"\u202eright to left":           "�right to left",
		"\b\b\x00\x7f\xff":              "�����",
		strings.Repeat("a", 300):        strings.Repeat("a", 300),
		strings.Repeat("a", 301):        strings.Repeat("a", 300) + "…",
		strings.Repeat("漢", 2000):       strings.Repeat("漢", 100) + "…",
		"a" + strings.Repeat("漢", 2000): "a" + strings.Repeat("漢", 99) + "…",
	} {
		var out strings.Builder
		printer := FindingsPrinter{}
		if err := printer.Print(&out, []findings.Finding{{Level: findings.Error, Check: "X", Message: text}}, nil, "end"); err != nil {
			t.Fatal(err)
		}
		got := strings.TrimSuffix(strings.TrimPrefix(out.String(), "Error  X  "), "\nend\n")
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q is shown as %.400q, want %.400q", text, got, want)
		}
	}
}
