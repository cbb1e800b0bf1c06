// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A sandbox that is kept at its shutdownTime has neither pod nor Service then, and both again
// when the time is taken away. Its status names the Service as long as there is one.
func TestSandboxKeptPastItsTime(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeSandbox(t, ns, "box", portsTemplate, func(s *v1alpha1.Sandbox) {
		s.Spec.Service, s.Spec.ShutdownPolicy = new(true), v1alpha1.ShutdownRetain
	})
	runs := func(s *v1alpha1.Sandbox) error {
		if want := "box." + ns + ".svc.cluster.local"; s.Status.ServiceFQDN != want {
			return fmt.Errorf("its Service is %q, want %q", s.Status.ServiceFQDN, want)
		}
		if ready := v1beta1.ReadyOf(s); ready.Message != "Pod is Ready; Service Exists" {
			return fmt.Errorf("not ready: %s", ready.Message)
		}
		return nil
	}
	c.awaitSandbox(t, ns, "box", runs)
	if labels := c.awaitService(t, ns, "box").Labels; labels[v1alpha1.AgentLabelNameHash] != v1alpha1.NameHash("box") {
		t.Errorf("labels of the Service: %v", labels)
	}

	c.patchSandbox(t, ns, "box", fmt.Sprintf(`{"spec":{"shutdownTime":%q}}`, time.Now().Add(2*time.Second).UTC().Format(time.RFC3339)))
	c.awaitNoPod(t, ns, "box")
	c.awaitNoService(t, ns, "box")
	c.awaitSandbox(t, ns, "box", func(s *v1alpha1.Sandbox) error {
		if !v1alpha1.SandboxExpired(s) || s.Status.SandboxIP != "" || s.Status.NodeName != "" || s.Status.ServiceFQDN != "" {
			return fmt.Errorf("not expired: %+v", s.Status)
		}
		return nil
	})

	c.patchSandbox(t, ns, "box", `{"spec":{"shutdownTime":null}}`)
	c.awaitSandbox(t, ns, "box", runs)
	c.pod(t, ns, "box")
}
