// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"reflect"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// sameSpec reports whether two claims ask for the same. Defaults may be left out. Timeouts and
// times are not compared: a program that is restarted sets others, and GiveBack changes them.
func sameSpec(a, b *v1alpha1.SandboxClaim) bool {
	one, errOne := comparableSpec(a)
	other, errOther := comparableSpec(b)
	return errOne == nil && errOther == nil && reflect.DeepEqual(one, other)
}

// comparableSpec returns what a claim asks for as decoded JSON, in which quantities and raw objects
// are equal however they were written.
func comparableSpec(claim *v1alpha1.SandboxClaim) (any, error) {
	claim = claim.DeepCopy()
	v1alpha1.SetObjectDefaults_SandboxClaim(claim)
	spec := &claim.Spec
	spec.ClaimTimeout, spec.TTLAfterCompleted, spec.WaitReadyTimeout = nil, nil, nil
	spec.ShutdownTime, spec.PauseTime, spec.Lifecycle = nil, nil, nil
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var decoded any
	err = json.Unmarshal(text, &decoded)
	return decoded, err
}
