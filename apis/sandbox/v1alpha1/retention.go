// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"
)

// RetainPausedForever is the value of AnnotationReservePausedSandboxDuration for a
// sandbox that is kept as long as it is paused.
const RetainPausedForever = "forever"

// forever is what OpenKruise Agents takes for it.
const forever = 100 * 365 * 24 * time.Hour

// PausedRetention reads a value of AnnotationReservePausedSandboxDuration: how
// long a sandbox is kept after it was paused by itself. Empty is 0, which says
// nothing about it.
func PausedRetention(value string) (time.Duration, error) {
	switch value {
	case "":
		return 0, nil
	case RetainPausedForever:
		return forever, nil
	}
	retention, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("must be %q or a duration such as 24h: %w", RetainPausedForever, err)
	}
	if retention <= 0 {
		return 0, fmt.Errorf("must be %q or a positive duration such as 24h", RetainPausedForever)
	}
	return retention, nil
}
