// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestMessagesOfSetupsAreBounded: errors of others, such as admission webhooks, are part of them.
func TestMessagesOfSetupsAreBounded(t *testing.T) {
	const most = maxSetupMessage
	long := strings.Repeat("ü", 1<<20)
	for name, says := range map[string]func(*v1alpha1.Sandbox){
		"told":   func(sb *v1alpha1.Sandbox) { ReportPoolSetup(sb, long) },
		"failed": func(sb *v1alpha1.Sandbox) { FailPoolSetup(sb, long, time.Now()) },
		"resumed": func(sb *v1alpha1.Sandbox) {
			EndSetupAgain(&sb.Status, &SetupError{Condition: v1alpha1.SandboxConditionRuntimeInitialized, Message: long}, time.Now())
		},
	} {
		sb := &v1alpha1.Sandbox{}
		BeginPoolSetup(sb, time.Now())
		says(sb)
		messages := []string{sb.Status.Message}
		for _, c := range sb.Status.Conditions {
			messages = append(messages, c.Message)
		}
		for _, message := range messages {
			if len(message) > most || message != "" && !strings.HasPrefix(message, "üü") {
				t.Errorf("%s: a message of %d bytes", name, len(message))
			}
		}
		if len(sb.Status.Conditions) == 0 || sb.Status.Conditions[0].Message == "" {
			t.Errorf("%s: it says %+v", name, sb.Status)
		}
	}
}

// TestAwaitsPoolSetup: the agent-runtime of a sandbox that only lacks its token gets that, and one whose
// container was restarted does not wait until the sandbox is ready.
func TestAwaitsPoolSetup(t *testing.T) {
	for reason, want := range map[string]bool{
		v1alpha1.ReasonPodReady: true, v1alpha1.ReasonContainerRestarted: true, v1alpha1.ReasonStartContainerFailed: false,
	} {
		sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", UID: "p", Controller: new(true),
		}}}}
		BeginPoolSetup(sb, time.Now())
		sb.Status.Phase, sb.Status.PodInfo.PodIP = v1alpha1.SandboxRunning, "10.0.0.1"
		ready := metav1.Condition{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: reason}
		if reason == v1alpha1.ReasonPodReady {
			ready.Status = metav1.ConditionTrue
		}
		sb.Status.Conditions = append(sb.Status.Conditions, ready)
		if got := AwaitsPoolSetup(sb); got != want {
			t.Errorf("%s: %t, want %t", reason, got, want)
		}
	}
}
