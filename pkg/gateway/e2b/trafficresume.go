// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"errors"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// ErrPausedAgain means that another client paused a sandbox while it was being resumed.
var ErrPausedAgain = errors.New("the sandbox was paused again")

// Resume resumes the paused sandbox of an id because of traffic, with its timeout starting anew, and
// returns when it runs. name and uid are those of the sandbox: another sandbox of the id is left alone.
// Errors are ErrPausedAgain, an *Error, or those of the cluster.
func (a *API) Resume(ctx context.Context, agents typed.AgentsV1alpha1Interface, id, name string, uid types.UID) error {
	namespace, _, ok := mapping.ParseSandboxID(id)
	if !ok {
		return apierrors.NewNotFound(v1alpha1.Resource("sandboxes"), name)
	}
	cluster := &teamClient{api: a, agents: agents, team: namespace}
	_, sb, err := cluster.patchWith(ctx, cluster.getterByUID(name, uid, id), func(sb *v1alpha1.Sandbox) (*mapping.Change, error) {
		timeout := resumedAtLeast
		if n, err := strconv.ParseInt(sb.Annotations[v1alpha1.AnnotationE2BTimeout], 10, 64); err == nil {
			timeout = max(timeout, time.Duration(n)*time.Second)
		}
		if !sb.Spec.Paused {
			return mapping.NoChange(sb), nil
		}
		return mapping.Resume(sb, cluster.now().Add(timeout)), nil
	})
	if err != nil {
		return err
	}
	if sb, err = cluster.pollUntil(ctx, sb, isResumeOver); err == nil && sb.Spec.Paused {
		err = ErrPausedAgain
	}
	return err
}
