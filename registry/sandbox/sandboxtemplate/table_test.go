// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

func TestTable(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	template := registrytest.NewSandboxTemplate("python")
	template.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))

	revision := template.DeepCopy()
	revision.Name = "python-k2j"
	revision.Labels = map[string]string{v1alpha1.LabelTemplateHash: "k2j"}
	revision.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxSet", Name: "pool", Controller: new(true),
	}}
	labelled := template.DeepCopy() // as anyone may
	labelled.Labels = revision.Labels
	labelled.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"image":"a:1"},{"image":"b:2"}]}}`)
	reference := template.DeepCopy()
	reference.Spec.Template, reference.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "base"}
	long := template.DeepCopy()
	long.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"image":"` + strings.Repeat("x", 500) + `"}]}}`)

	registrytest.CheckTable(t, sandboxtemplate.NewTableConvertor(testclock.NewFakePassiveClock(now)),
		&v1alpha1.SandboxTemplateList{Items: []v1alpha1.SandboxTemplate{*template, *revision, *labelled, *reference, *long}},
		registrytest.Table{
			Columns: []string{"Name", "Set", "Revision", "Image", "Age"},
			Rows: [][]any{
				{"python", "<none>", "<none>", "busybox:1", "5m"},
				{"python-k2j", "pool", "k2j", "busybox:1", "5m"},
				{"python", "<none>", "<none>", "a:1,b:2", "5m"},
				{"python", "<none>", "<none>", "<base>", "5m"},
				{"python", "<none>", "<none>", strings.Repeat("x", 120) + "...", "5m"},
			},
		})
}
