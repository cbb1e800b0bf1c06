// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
)

// hostile has what controls a terminal, and what has a text look like another one.
const hostile = "a\x1b[31m\a\b\t\r\u009b2J\u202eb\u2066\u200b\u00adc\ufeff"

// TestHostileTexts: nothing that a server or another user says reaches a terminal as it is, in any table or
// message.
func TestHostileTexts(t *testing.T) {
	claim := testClaim(hostile, hostile, 1)
	claim.Namespace = hostile
	claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: hostile}
	claim.Status = v1alpha1.SandboxClaimStatus{Phase: v1alpha1.SandboxClaimPhaseCompleted, ClaimedReplicas: 1, Message: hostile,
		Sandboxes:  []v1alpha1.ClaimedSandbox{{Name: hostile, PodIPs: []string{hostile}}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ClaimConditionReady, Status: metav1.ConditionFalse, Reason: hostile, Message: hostile}}}
	sandbox := testSandbox(hostile, hostile)
	sandbox.Namespace, sandbox.Status.Message, sandbox.Status.PodInfo.PodIP = hostile, hostile, hostile
	sandbox.Labels[v1alpha1.LabelSandboxPool], sandbox.Annotations[v1alpha1.AnnotationClaimedBy] = hostile, hostile
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: hostile}}
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SetConditionAvailable, Status: metav1.ConditionFalse, Reason: hostile, Message: hostile}}

	table := func(table *metav1.Table) func(*testing.T, *bytes.Buffer) {
		return func(t *testing.T, w *bytes.Buffer) {
			if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(table, w); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, print := range map[string]func(*testing.T, *bytes.Buffer){
		"holdings": table(newHoldings([]*v1alpha1.SandboxClaim{claim}, []*v1alpha1.Sandbox{sandbox}).table(time.Now(), true)),
		"pools":    table(poolTable([]pool{{set: set}}, true, true)),
		"keys":     table(keyTable([]apikeys.Record{{ID: hostile, Name: hostile, CreatedBy: hostile}})),
		"findings": func(t *testing.T, w *bytes.Buffer) {
			found := []findings.Finding{{Level: findings.Error, Check: "check", Message: hostile, Action: hostile}}
			if err := (&FindingsPrinter{}).Print(w, found, nil, "summary"); err != nil {
				t.Fatal(err)
			}
		},
		"a message": func(_ *testing.T, w *bytes.Buffer) {
			newConnection(genericiooptions.IOStreams{ErrOut: w}).say("said %s", hostile)
		},
		"a warning": func(_ *testing.T, w *bytes.Buffer) {
			newConnection(genericiooptions.IOStreams{ErrOut: w}).configure(&rest.Config{}).WarningHandler.HandleWarningHeader(299, "-", hostile)
		},
		"an error":             func(_ *testing.T, w *bytes.Buffer) { Report(w, errors.New(hostile)) },
		"an error of a server": func(_ *testing.T, w *bytes.Buffer) { Report(w, apierrors.NewBadRequest(hostile)) },
	} {
		t.Run(name, func(t *testing.T) {
			var w bytes.Buffer
			print(t, &w)
			if !strings.Contains(w.String(), "2J") { // of the hostile text
				t.Fatalf("prints nothing: %q", w.String())
			}
			for _, r := range w.String() {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("prints %q: %q", r, w.String())
				}
			}
		})
	}
}

// TestPrintable: what is printed stays, and what is escaped can be distinguished.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"two\nlines, ä 日本 é \"'": "two\nlines, ä 日本 é \"'",
		"\x1b[2J":                "^[[2J",
		"a\u202eb\tc\x00":        `a\u202eb\tc\x00`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
}
