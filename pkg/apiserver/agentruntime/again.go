// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

// errUnreachable is of an agent-runtime that does not answer /init, or answers 5xx. It may be starting.
var errUnreachable = errors.New("the agent-runtime is not reachable")

// SetUpAgain does for the new pod of a sandbox what SetUp did for the one before, from
// what is sealed on the sandbox: the claim may be gone. Of one that was bound without a setup the
// runtime only gets the token of its pool. A runtime that has another token was initialized by
// another caller, because it is that of a new pod. mounting is called before the first volume is
// mounted; its error ends the work and is returned. After a restart of a container nothing is mounted,
// because another container may be the one that was restarted.
//
// Other errors are those of SetUp. They wrap errUnreachable if another try may succeed.
func (s *Setup) SetUpAgain(ctx context.Context, sb *v1alpha1.Sandbox, mounting func(context.Context) error) error {
	owner := types.UID(sb.Annotations[v1alpha1.AnnotationOwner])
	err := s.ensureVersion(ctx, sb)
	if err != nil && ctx.Err() != nil {
		return err
	}
	var request Request
	if err == nil && sb.Annotations[v1alpha1.AnnotationInitRuntimeRequest] != "" {
		request, err = s.Open(ctx, owner, sb)
	}
	var token string
	if err == nil {
		token, err = s.Token(ctx, owner, sb)
	}
	if err != nil {
		return &claims.SetupError{
			Condition: v1alpha1.SandboxConditionRuntimeInitialized, Reason: v1alpha1.ReasonRuntimeInitFailed, Message: err.Error(),
		}
	}
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sb.Namespace, UID: owner}}
	claim.Spec.EnvVars, claim.Spec.DynamicVolumesMount = request.EnvVars, request.DynamicVolumesMount
	verify := func(ctx context.Context) error { return s.Pods.Verify(ctx, sb) }
	err = s.init(ctx, sb, runtime.InitRequest{EnvVars: request.EnvVars, AccessToken: token, Before: verify})
	if err != nil {
		cause := failed(ctx, err, v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.ReasonRuntimeInitFailed)
		if runtime.IsUnreachable(err) {
			return fmt.Errorf("%w: %w", errUnreachable, cause)
		}
		return cause
	}
	volumes, err := s.Volumes.of(ctx, claim)
	if err != nil {
		return err
	}
	if len(volumes) == 0 {
		return nil
	}
	if claims.AwaitsSetupAfterRestart(&sb.Status) {
		return &claims.SetupError{
			Condition: v1alpha1.SandboxConditionVolumesMounted, Reason: v1alpha1.ReasonMountFailed,
			Message: "a container was restarted, and may have lost its volumes; pause and resume the sandbox to mount them again",
		}
	}
	if err := mounting(ctx); err != nil {
		return err
	}
	return s.mount(ctx, sb, token, volumes, verify)
}

// mount mounts volumes into a sandbox, in their order. before is called right before each call of the
// runtime, and its error ends the work.
func (s *Setup) mount(
	ctx context.Context, sb *v1alpha1.Sandbox, token string, volumes []runtime.Volume, before func(context.Context) error,
) error {
	target := TargetOf(sb)
	for _, volume := range volumes {
		volume.PodUID, volume.Before = string(sb.Status.PodInfo.PodUID), before
		err := untilPodIsRead(ctx, func(ctx context.Context) error { return s.Client.Mount(ctx, target, token, volume) })
		if err != nil {
			return failed(ctx, err, v1alpha1.SandboxConditionVolumesMounted, v1alpha1.ReasonMountFailed)
		}
	}
	return nil
}
