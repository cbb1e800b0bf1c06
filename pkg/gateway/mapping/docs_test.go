// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// TestDocumentedExtensions: the keys that docs/e2b.md has a table of are those that are
// known.
func TestDocumentedExtensions(t *testing.T) {
	text, err := os.ReadFile("../../../docs/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Extension metadata\n")
	section, _, _ = strings.Cut(section, "\n## ")
	known := func(name string) bool {
		body := &mapping.CreateRequest{TemplateID: "base", Metadata: map[string]string{v1alpha1.E2BKeyPrefix + name: "true"}}
		_, err := mapping.NewCreatePlan(body, "key", mapping.Limits{MaxTimeout: mapping.DefaultMaxTimeout}, time.Now())
		var invalid *mapping.InvalidError
		return !errors.As(err, &invalid) || !strings.Contains(invalid.Message, "is not known")
	}
	if known("something-else") {
		t.Error("a key that nobody knows is known")
	}
	keys := 0
	for row := range strings.SplitSeq(section, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		if !strings.HasPrefix(row, "| `") {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			keys++
			if !known(name[1]) {
				t.Errorf("%s is not known", name[1])
			}
		}
	}
	if keys < 15 {
		t.Errorf("%d keys are in the table", keys)
	}
}
