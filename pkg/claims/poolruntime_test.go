// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"
	"time"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestMessagesOfSetupsAreBounded: errors of others, such as admission webhooks, are part of them.
func TestMessagesOfSetupsAreBounded(t *testing.T) {
	const most = maxSetupMessage
	long := strings.Repeat("ü", 1<<20)
	for name, says := range map[string]func(*v1alpha1.Sandbox){
		"told":   func(sb *v1alpha1.Sandbox) { TellPoolSetup(sb, long) },
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
