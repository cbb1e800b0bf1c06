// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// maxChanges is how many entries of a claim's list one write changes. The list of a claim
// of thousands is more than a request may be, and so could its changes be.
const maxChanges = 2000

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// changes returns the JSON patch from the status of this very version of a claim to these
// members and conditions, or nothing. A patch that would be too large leaves a rest.
func changes(claim *v1alpha1.SandboxClaim, all []member, conditions []metav1.Condition) []operation {
	var patch []operation
	if !equality.Semantic.DeepEqual(claim.Status.Conditions, conditions) {
		patch = append(patch, operation{"add", "/status/conditions", conditions})
	}
	if n := int32(len(all)); n > claim.Status.ClaimedReplicas {
		patch = append(patch, operation{"add", "/status/claimedReplicas", n})
	}
	entries := entryChanges(claim.Status.Sandboxes, all)
	patch = append(patch, entries[:min(len(entries), maxChanges)]...)
	if len(patch) == 0 {
		return nil
	}
	// With the version in it the server refuses the patch of any other.
	return slices.Insert(patch, 0, operation{"replace", "/metadata/resourceVersion", claim.ResourceVersion})
}

// entryChanges returns what changes in a list: first addresses, then what goes, the last
// first, then what comes. So each beginning of it makes sense.
func entryChanges(before []v1alpha1.ClaimedSandbox, all []member) []operation {
	const list = "/status/sandboxes"
	if len(before) == 0 && len(all) > 0 {
		entries := make([]v1alpha1.ClaimedSandbox, 0, min(len(all), maxChanges))
		for _, m := range all[:min(len(all), maxChanges)] {
			entries = append(entries, m.entry)
		}
		return []operation{{"add", list, entries}}
	}
	var patch, coming []operation
	kept := make([]bool, len(before))
	for _, m := range all {
		if m.at < 0 {
			coming = append(coming, operation{"add", list + "/-", m.entry})
			continue
		}
		kept[m.at] = true
		path := fmt.Sprintf("%s/%d/podIPs", list, m.at)
		switch {
		case slices.Equal(before[m.at].PodIPs, m.entry.PodIPs):
		case len(m.entry.PodIPs) == 0:
			patch = append(patch, operation{Op: "remove", Path: path})
		default:
			patch = append(patch, operation{"add", path, m.entry.PodIPs})
		}
	}
	for i := range slices.Backward(before) {
		if !kept[i] {
			patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("%s/%d", list, i)})
		}
	}
	return append(patch, coming...)
}

// encode returns a patch as it is sent.
func encode(patch []operation) ([]byte, error) { return json.Marshal(patch) }
