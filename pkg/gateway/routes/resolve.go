// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/sandboxproxy"
)

// maxAddressReads is how many sandboxes are read for their addresses at a time. Each may take some MiB
// of memory, and requests for different ports of a sandbox do not share a read. A team has at most what
// it leaves free for others.
const maxAddressReads = 128

// Resolve implements sandboxproxy.Resolve. It reads the sandbox from the API server, never from the
// table. Concurrent calls for one port of a sandbox share a read. Errors wrap
// sandboxproxy.ErrNotRunning or ErrUnavailable, or are that of ctx.
func (t *Table) Resolve(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
	key := fmt.Sprintf("%s/%s/%s/%s/%d", target.Namespace, target.Name, target.UID, target.Claim, target.Port)
	arrivedAt := clock.RealClock{}.Now()
	var found resolved
	var err error
	// A shared read may have started before this request came, and miss a change made since. If so, read
	// once more.
	for again := true; again; again = ctx.Err() == nil && found.startedAt.Before(arrivedAt) {
		found, err = t.resolving.Do(ctx, key, func(ctx context.Context) (resolved, error) {
			startedAt := clock.RealClock{}.Now()
			address, err := t.addresses.read(ctx, target)
			return resolved{address, startedAt}, err
		})
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return found.address, err
}

// resolved is an address, and when the read of it started.
type resolved struct {
	address   sandboxproxy.Address
	startedAt time.Time
}

// addressReader reads the addresses of sandboxes from the API server, within the limits of teams.
type addressReader struct {
	client        typed.AgentsV1alpha1Interface
	allowLoopback bool
	clock         clock.Clock
	verifier      *podaddress.Verifier
	// limits are how often the API server is asked about the sandboxes of each team, and reads the
	// slots of reads, which teams share.
	limits *fairness.Limiters
	reads  *fairness.Slots
}

// read reads a sandbox and its pod, and returns their address.
func (r *addressReader) read(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	address, part, err := r.sandbox(ctx, target)
	if err != nil {
		return sandboxproxy.Address{}, err
	}
	if err := r.verify(ctx, part); err != nil {
		return sandboxproxy.Address{}, err
	}
	return address, nil
}

// sandbox reads a sandbox from the API server. It returns its address, and what is needed to verify that.
func (r *addressReader) sandbox(ctx context.Context, target sandboxproxy.Target) (sandboxproxy.Address, *v1alpha1.Sandbox, error) {
	if err := r.wait(ctx, target.Namespace); err != nil {
		return sandboxproxy.Address{}, nil, err
	}
	release, err := r.reads.Wait(ctx, target.Namespace)
	if err != nil {
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: too many sandboxes of %s are read at a time: %w", ErrUnavailable, target.Namespace, err)
	}
	defer release()
	sandbox, err := r.client.Sandboxes(target.Namespace).Get(ctx, target.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: it is gone", sandboxproxy.ErrNotRunning)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to read sandbox", "sandbox", klog.KRef(target.Namespace, target.Name))
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case sandbox.UID != target.UID:
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: another sandbox has its name", sandboxproxy.ErrNotRunning)
	}
	if id, ok := v1alpha1.IsE2B(sandbox); !ok || id != v1alpha1.E2BSandboxID(target.Namespace, target.Claim) {
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: it is no longer held by claim %s of the E2B API", sandboxproxy.ErrNotRunning, target.Claim)
	}
	if state := v1alpha1.StateOf(sandbox, r.clock.Now()); state != v1alpha1.StateRunning {
		return sandboxproxy.Address{}, nil, fmt.Errorf("%w: it is %s", sandboxproxy.ErrNotRunning, state)
	}
	if v1alpha1.IsClosedRuntimePort(sandbox, target.Port) {
		if mapping.SetupFailure(sandbox) != "" {
			return sandboxproxy.Address{}, nil, ErrSetupFailed
		}
		return sandboxproxy.Address{}, nil, sandboxproxy.ErrRuntimeNotSetUp
	}
	address, err := r.usable(sandbox.Status.PodInfo.PodIP)
	if err != nil {
		return sandboxproxy.Address{}, nil, err
	}
	return sandboxproxy.AddressOf(sandbox, address, target.Port), podaddress.PartOf(sandbox), nil
}

// wait waits until the rate limit of a team allows another read.
func (r *addressReader) wait(ctx context.Context, team string) error {
	if err := r.limits.Of(team).Wait(ctx); err != nil {
		return fmt.Errorf("%w: the sandboxes of %s are asked for too often: %w", ErrUnavailable, team, err)
	}
	return nil
}

// verify returns an error unless the pod of a sandbox has the address that the sandbox has. The
// read of the pod counts for the limit of the team.
func (r *addressReader) verify(ctx context.Context, sandbox *v1alpha1.Sandbox) error {
	if !podaddress.Simulated(sandbox) {
		if err := r.wait(ctx, sandbox.Namespace); err != nil {
			return err
		}
	}
	err := r.verifier.Verify(ctx, sandbox)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, podaddress.ErrStale):
		return fmt.Errorf("%w: %w", sandboxproxy.ErrNotRunning, err)
	}
	klog.FromContext(ctx).Error(err, "Failed to read the pod of a sandbox", "sandbox", klog.KObj(sandbox))
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// usable parses an address. It returns an error for addresses that cannot be those of a pod.
func (r *addressReader) usable(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: it has no address", sandboxproxy.ErrNotRunning)
	}
	address = address.Unmap()
	switch {
	case address.IsLoopback() && r.allowLoopback:
		return address, nil
	case !address.IsGlobalUnicast() || address.Zone() != "":
		// Loopback, link-local, multicast, broadcast and unspecified addresses.
		return netip.Addr{}, fmt.Errorf("%w: %s is no address of a pod", sandboxproxy.ErrNotRunning, address)
	}
	return address, nil
}
