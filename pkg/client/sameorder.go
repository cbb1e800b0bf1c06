// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"reflect"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// sameOrder reports whether two claims ask for the same, however it is written: defaults
// may be left out. How long things may take or live is not compared: a program that starts
// again says other times, and giving back changes them.
func sameOrder(a, b *v1alpha1.SandboxClaim) bool {
	one, errOne := orderOf(a)
	other, errOther := orderOf(b)
	return errOne == nil && errOther == nil && reflect.DeepEqual(one, other)
}

// orderOf is what a claim asks for, as JSON is read: then quantities and raw objects are
// equal however they were written.
func orderOf(claim *v1alpha1.SandboxClaim) (any, error) {
	claim = claim.DeepCopy()
	v1alpha1.SetObjectDefaults_SandboxClaim(claim)
	spec := &claim.Spec
	spec.ClaimTimeout, spec.TTLAfterCompleted, spec.WaitReadyTimeout = nil, nil, nil
	spec.ShutdownTime, spec.PauseTime, spec.Lifecycle = nil, nil, nil
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var order any
	err = json.Unmarshal(text, &order)
	return order, err
}
