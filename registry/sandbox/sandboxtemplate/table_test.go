// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate_test

import (
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

	registrytest.CheckTable(t, sandboxtemplate.NewTableConvertor(testclock.NewFakePassiveClock(now)),
		&v1alpha1.SandboxTemplateList{Items: []v1alpha1.SandboxTemplate{*template}},
		registrytest.Table{
			Columns: []string{"Name", "Age"},
			Rows:    [][]any{{"python", "5m"}},
		})
}
