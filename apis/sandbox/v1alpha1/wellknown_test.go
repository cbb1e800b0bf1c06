// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestTemplateLabel(t *testing.T) {
	fits := strings.Repeat("a", 63)
	if got := TemplateLabel(fits); got != fits {
		t.Errorf("%s became %s", fits, got)
	}
	seen := map[string]string{}
	for _, name := range []string{
		fits + "b", fits + "c", // the same except for the end
		strings.Repeat("a", 49) + "." + strings.Repeat("b", 200), // cut at a dot
		strings.Repeat("a", 48) + ".-." + strings.Repeat("b", 50),
		strings.Repeat("a.", 126),
	} {
		label := TemplateLabel(name)
		if problems := validation.IsValidLabelValue(label); len(problems) > 0 {
			t.Errorf("%s became %s: %v", name, label, problems)
		}
		if other, ok := seen[label]; ok {
			t.Errorf("%s and %s are both %s", name, other, label)
		}
		if label != TemplateLabel(name) {
			t.Errorf("%s has two labels", name)
		}
		seen[label] = name
	}
}

func TestNetworkPolicyName(t *testing.T) {
	if got := NetworkPolicyName("python"); got != "python-network-policy" {
		t.Errorf("got %s", got)
	}
	longest := NetworkPolicyName(strings.Repeat("a", 238))
	if len(longest) != 253 || !strings.HasPrefix(longest, strings.Repeat("a", 238)+"-") {
		t.Errorf("got %s, of %d characters", longest, len(longest))
	}
	one, other := NetworkPolicyName(strings.Repeat("a", 239)), NetworkPolicyName(strings.Repeat("a", 240))
	if one == other {
		t.Errorf("two templates have the policy %s", one)
	}
	for _, name := range []string{one, other} {
		if problems := apivalidation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}
