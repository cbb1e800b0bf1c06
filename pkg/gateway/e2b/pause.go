// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// retentionHeader says how long a paused sandbox is kept.
const retentionHeader = "X-E2b-Kruise-Reserve-Paused-Sandbox-Duration"

// pause pauses a sandbox, and returns when its pod is gone. For a sandbox that is being paused
// already, it waits for that.
func pause(c *call) error {
	var body lifecycleRequest
	if err := c.decodeBody(&body); err != nil {
		return err
	}
	retention := c.r.Header.Get(retentionHeader)
	if retention != "" {
		if err := mapping.CheckRetention(retention); err != nil {
			return err
		}
	}
	_, sb, err := c.patchByID(func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		switch {
		case mapping.IsPaused(sb) && c.cluster.hasLostWrite:
			return mapping.NoChange(sb), nil
		case mapping.IsPaused(sb):
			return nil, &Error{Code: http.StatusConflict, Message: "the sandbox is paused already"}
		case sb.Spec.Paused && retention == "":
			return mapping.NoChange(sb), nil // the retention of the first pause stays
		}
		return mapping.Pause(sb, retention, c.cluster.now()), nil
	})
	if err != nil {
		return err
	}
	if _, err = c.await(sb, isPauseOver, "the sandbox is being paused and its pod has not stopped yet: pause again to wait for it"); err != nil {
		return err
	}
	c.waitUntilStopped()
	writeEmpty(c.w, http.StatusNoContent)
	return nil
}
