// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// NewTableConvertor prints templates. A template has no columns of its own, as
// with OpenKruise: what it says does not fit in a cell.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[*v1alpha1.SandboxTemplate](),
		base.AgeColumn[*v1alpha1.SandboxTemplate](),
	)
}
