// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// Volumes are mounted into a pod once at most, so before the first one it is noted on the
// sandbox who does it: see AnnotationMounting. Who finds another's note waits for as long as
// that server is there.

// errMountedElsewhere means that another server mounts the volumes.
var errMountedElsewhere = errors.New("another server mounts the volumes")

// markOf is the AnnotationMounting of a server for one pod, and one resume, of a sandbox.
func markOf(server string, a podRun) string {
	return fmt.Sprintf("%s/%s.%d", server, a.pod, a.generation)
}

// mounting notes on the sandbox that this server mounts its volumes.
func (w *work) mounting(ctx context.Context) error {
	tried := false // a write may have come to its end although it failed
	return w.write(ctx, func(sb *v1alpha1.Sandbox) error {
		server, which, _ := strings.Cut(sb.Annotations[v1alpha1.AnnotationMounting], "/")
		if _, this, _ := strings.Cut(w.mark, "/"); which == this { // not of a pod before
			if w.mark == sb.Annotations[v1alpha1.AnnotationMounting] && tried {
				return nil
			}
			if w.mark != sb.Annotations[v1alpha1.AnnotationMounting] && w.lives(server) {
				return errMountedElsewhere
			}
			return &claims.SetupError{
				Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed,
				Message: "mounting the volumes into this pod had begun before, and they are mounted once only; pause and resume the sandbox to try again",
			}
		}
		if sb.Annotations == nil {
			sb.Annotations = map[string]string{}
		}
		sb.Annotations[v1alpha1.AnnotationMounting] = w.mark
		tried = true
		return nil
	})
}
