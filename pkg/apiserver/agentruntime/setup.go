// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

// addressBackoff is how a sandbox without an address is waited for: as long as for a
// runtime that cannot be reached.
var addressBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 5}

// podBackoff is how the read of a Pod is retried, at the end every Cap. A sandbox that is not set up
// is lost for its claim, so a setup does not fail before its time is up because kube-apiserver is
// unavailable.
var podBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 5 * time.Second}

// Setup sets up the agent-runtimes of the sandboxes of claims.
type Setup struct {
	*Keyring
	// Client calls the runtimes.
	Client *runtime.Client
	// Volumes finds the volumes that claims mount.
	Volumes *Volumes
	// Pods verifies the addresses of sandboxes.
	Pods *podaddress.Verifier
	// Sandbox reads a sandbox as a watch has reported it; nil if it is gone.
	Sandbox func(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error)
	// WithTemplate returns a sandbox of a pool with the pod template that it refers to.
	WithTemplate func(ctx context.Context, sb *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error)
	// Newest reads a sandbox as it is in the store; nil if it is gone.
	Newest func(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error)
}

// SetUp initializes the agent-runtime of a sandbox for the claim that holds it, and then
// mounts the claim's volumes into it, in their order. It may be called again for as long
// as no volume was to be mounted.
//
// The error is a *claims.SetupError, or that of ctx or of a read.
func (s *Setup) SetUp(ctx context.Context, claim *v1alpha1.SandboxClaim, sb *v1alpha1.Sandbox) error {
	volumes, err := s.Volumes.of(ctx, claim)
	if err != nil {
		return err
	}
	// First: a watch may not have reported the version of the key yet.
	if err := s.ensureVersion(ctx, sb); err != nil {
		return failed(ctx, err, v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.ReasonRuntimeInitFailed)
	}
	token, err := s.Token(ctx, claim.UID, sb)
	if err != nil {
		return failed(ctx, err, v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.ReasonRuntimeInitFailed)
	}
	if sb, err = s.addressed(ctx, sb); err != nil {
		return err
	}
	unchanged := func(ctx context.Context) error { return s.unchanged(ctx, sb) }
	request := runtime.InitRequest{AccessToken: token, Before: unchanged}
	if claims.SetsUpRuntime(claim) {
		request.EnvVars = claim.Spec.EnvVars
	}
	err = s.init(ctx, sb, request)
	if err != nil {
		return failed(ctx, err, v1alpha1.SandboxConditionRuntimeInitialized, v1alpha1.ReasonRuntimeInitFailed)
	}
	return s.mount(ctx, sb, token, volumes, unchanged)
}

// URL returns where the agent-runtime of a sandbox is called. It is empty where it must not,
// or cannot, be called.
func (*Setup) URL(sb *v1alpha1.Sandbox) string {
	url, err := TargetOf(sb).BaseURL()
	if err != nil {
		return "" // a call of it returns the error
	}
	return url
}

// TokenIn returns the access token of the runtime in a sandbox that a claim has in its status;
// empty if the claim does not hold it any more, or none was set.
func (s *Setup) TokenIn(ctx context.Context, claim *v1alpha1.SandboxClaim, in v1alpha1.ClaimedSandbox) (string, error) {
	for _, read := range []func(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error){s.Sandbox, s.Newest} {
		sb, err := read(ctx, claim.Namespace, in.Name)
		if err != nil {
			return "", fmt.Errorf("reading sandbox %s: %w", in.Name, err)
		}
		if sb != nil && sb.UID == in.UID && v1alpha1.IsBoundTo(sb, claim) {
			if !claims.HasToken(claim, sb) {
				return "", nil
			}
			return s.Token(ctx, claim.UID, sb)
		} // or watches have not reported the binding yet
	}
	return "", nil
}

// failed is the error of a call that failed, unless that was because ctx is done.
func failed(ctx context.Context, err error, condition, reason string) error {
	if ctx.Err() != nil {
		return err
	}
	return &claims.SetupError{
		Condition: condition, Reason: reason, Message: err.Error(), Hopeless: runtime.IsUnable(err) || apierrors.IsForbidden(err), // no Pod of another sandbox may be read either
	}
}

// addressed returns the sandbox, as it is when it has an address, which is reported by watches.
func (s *Setup) addressed(ctx context.Context, sb *v1alpha1.Sandbox) (*v1alpha1.Sandbox, error) {
	if sb.Status.PodInfo.PodIP != "" {
		return sb, nil
	}
	err := wait.ExponentialBackoffWithContext(ctx, addressBackoff, func(ctx context.Context) (bool, error) {
		now, err := s.Sandbox(ctx, sb.Namespace, sb.Name)
		if err != nil {
			return false, err
		}
		if now != nil && now.UID == sb.UID {
			sb = now
		}
		return sb.Status.PodInfo.PodIP != "", nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return sb, nil // the client says what is missing
	}
	return sb, err
}

// errChanged means that a sandbox is not what it was when its setup was due. Its address
// may be another pod's, which must not get what is this claim's.
var errChanged = errors.New("the sandbox was paused, replaced or deleted, or has become unready, while its agent-runtime was set up")

// unchanged returns an error unless a sandbox still runs, is ready and has the pod that it
// had. What it sees of the sandbox costs no read of etcd, and may be some milliseconds old.
// What it sees of the pod is read for this call.
func (s *Setup) unchanged(ctx context.Context, queued *v1alpha1.Sandbox) error {
	now, err := s.Sandbox(ctx, queued.Namespace, queued.Name)
	if err != nil {
		return fmt.Errorf("reading the sandbox: %w", err)
	}
	if now != nil && now.UID == queued.UID && version(now) < version(queued) {
		now = queued // the cache has not heard yet
	}
	if now == nil || now.UID != queued.UID || now.DeletionTimestamp != nil || now.Spec.Paused ||
		now.Status.PodInfo.PodUID != queued.Status.PodInfo.PodUID || now.Status.PodInfo.PodIP != queued.Status.PodInfo.PodIP ||
		now.Status.Phase != v1alpha1.SandboxRunning || !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.SandboxConditionReady) {
		return errChanged
	}
	return s.Pods.Verify(ctx, queued)
}

// init initializes the runtime of a sandbox.
func (s *Setup) init(ctx context.Context, sb *v1alpha1.Sandbox, request runtime.InitRequest) error {
	return untilPodIsRead(ctx, func(ctx context.Context) error { return s.Client.Init(ctx, TargetOf(sb), request) })
}

// untilPodIsRead makes a call of a runtime, and makes it again while the Pod, which is read right
// before it, cannot be read. Nothing has been sent then. Between the attempts the call holds no slot
// of the client, so it delays no other call.
func untilPodIsRead(ctx context.Context, call func(context.Context) error) error {
	return podBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := call(ctx)
		if errors.Is(err, podaddress.ErrUnavailable) && !apierrors.IsForbidden(err) {
			return false, nil
		}
		return true, err
	})
}

// version is the revision of a sandbox; 0 if it has none.
func version(sb *v1alpha1.Sandbox) uint64 {
	revision, _ := strconv.ParseUint(sb.ResourceVersion, 10, 64) // 0 is older than all
	return revision
}

// TargetOf is where the agent-runtime of a sandbox is called.
func TargetOf(sb *v1alpha1.Sandbox) runtime.Target {
	url := sb.Annotations[v1alpha1.AnnotationRuntimeURL]
	if url == "" {
		url = sb.Annotations[v1alpha1.AnnotationE2BEnvdURL]
	}
	return runtime.Target{Namespace: sb.Namespace, PodIP: sb.Status.PodInfo.PodIP, URL: url, TLSPort: v1alpha1.RuntimeTLSPort(sb)}
}
