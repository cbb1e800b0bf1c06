// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestOutcome(t *testing.T) {
	p := pool{sandboxes: sandboxes(
		starting("failed").phase(v1alpha1.SandboxFailed).age(3*time.Minute),
		starting("succeeded").phase(v1alpha1.SandboxSucceeded).age(2*time.Minute),
		starting("terminating").phase(v1alpha1.SandboxTerminating).age(0),
		starting("older").phase(v1alpha1.SandboxFailed).age(0).revision(older),
		available("shutdown").shutdown(epoch).age(0),
		available("available").age(time.Hour), available("young").age(time.Minute), available("oldest").age(2*time.Hour),
		olderAvailable("other").age(0), starting("new").age(0),
	)}
	// Two that have not been available for long enough prove nothing yet.
	for second, name := range map[int]string{3: "youngest", 2: "younger"} {
		sandbox := available(name).age(0)
		sandbox.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(time.Duration(second)*time.Second - provenAfter))
		p.sandboxes = append(p.sandboxes, sandbox.Sandbox)
	}
	want := outcome{ended: 2, nextProven: epoch.Add(2 * time.Second), newestEnded: epoch.Add(-2 * time.Minute), newestAvailable: epoch.Add(-time.Minute)}
	if got := p.count(current, epoch).outcome; got != want {
		t.Errorf("outcome %+v, want %+v", got, want)
	}
}
