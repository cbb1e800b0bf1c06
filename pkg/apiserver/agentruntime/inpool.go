// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

// poolBackoff is how an agent-runtime in a pool that could not be initialized is tried again, at
// the end every Cap, until the sandbox is not there any more. Each attempt reads the Pod, so large
// pools of which no runtime answers need a long Cap. A pod that becomes ready, or is restarted,
// begins anew.
var poolBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 12, Cap: 5 * time.Minute}

const (
	// poolPatience is how long nothing is said of an agent-runtime in a pool that cannot be
	// initialized: it may be starting.
	poolPatience = 10 * time.Second
	// simulatedPatience is how long one is tried that has no pod. As a rule nothing listens there.
	simulatedPatience = 3 * time.Second
)

// runInPool gives the agent-runtime of a sandbox in a pool its token, and writes that. While it
// waits it holds no slot of the client.
func (w *work) runInPool(ctx context.Context) error {
	began := w.clock.Now()
	past := func(patience time.Duration) bool { return w.clock.Now().Sub(began) >= patience }
	return poolBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		id, err := w.setup.initInPool(ctx, w.sb, w.run)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrObsolete):
			return false, err
		case err == nil:
			return true, w.write(ctx, func(sb *v1alpha1.Sandbox) error {
				claims.EndPoolSetup(sb, id.String(), w.clock.Now())
				return nil
			})
		case errors.Is(err, errNoRuntime), podaddress.Simulated(w.sb) && runtime.IsUnreachable(err) && past(simulatedPatience):
			return true, w.write(ctx, func(sb *v1alpha1.Sandbox) error {
				claims.DropPoolSetup(sb)
				return nil
			})
		case runtime.IsUnauthorized(err):
			return true, w.write(ctx, func(sb *v1alpha1.Sandbox) error {
				claims.FailPoolSetup(sb, err.Error(), w.clock.Now())
				return nil
			})
		case !past(poolPatience):
			return false, nil
		}
		return false, w.write(ctx, func(sb *v1alpha1.Sandbox) error {
			claims.ReportPoolSetup(sb, err.Error())
			return nil
		})
	})
}

// errNoRuntime means that a sandbox has no agent-runtime.
var errNoRuntime = errors.New("the sandbox has no agent-runtime")

// initInPool gives the agent-runtime of a sandbox in a pool its token, and returns the id of
// that. It is one attempt, which waits only for a slot. If the runtime has another token
// of this pod already, it keeps that.
func (s *Setup) initInPool(ctx context.Context, queued *v1alpha1.Sandbox, its podRun) (tokenID, error) {
	sb, err := s.nowInPool(ctx, queued, its)
	if err != nil {
		return tokenID{}, err
	}
	// The port for TLS may be in the template. Without it, nothing is sent.
	if sb, err = s.WithTemplate(ctx, sb); err != nil {
		return tokenID{}, fmt.Errorf("the pod template, which may say that the agent-runtime speaks TLS: %w", err)
	}
	if !podtemplate.HasAgentRuntime(sb) {
		return tokenID{}, errNoRuntime
	}
	id := s.newTokenID(sb)
	err = s.giveToken(ctx, sb, its, id)
	if !runtime.IsUnauthorized(err) {
		return id, err
	}
	return s.recognizeToken(ctx, sb, its, id, err)
}

// recognizeToken finds out whether the other token that an agent-runtime has, as refused says, is
// that of the newest version of the key, which this server did not know, and returns its id then:
// a server that gave it may have stopped before it could write that. If not, the error is refused.
// Tokens of older versions are not recognized: a client that knows an old key could have set
// one.
func (s *Setup) recognizeToken(ctx context.Context, sb *v1alpha1.Sandbox, its podRun, tried tokenID, refused error) (tokenID, error) {
	if err := s.Refresh(ctx); err != nil {
		return tokenID{}, err
	}
	id := s.newTokenID(sb)
	if id == tried {
		return tokenID{}, refused
	}
	return id, s.giveToken(ctx, sb, its, id)
}

// giveToken initializes the agent-runtime of a sandbox in a pool with the token of an id.
func (s *Setup) giveToken(ctx context.Context, sb *v1alpha1.Sandbox, its podRun, id tokenID) error {
	token, err := s.poolToken(ctx, sb, id)
	if err != nil {
		return err
	}
	verify := func(ctx context.Context) error {
		if _, err := s.nowInPool(ctx, sb, its); err != nil {
			return err
		}
		return s.Pods.Verify(ctx, sb)
	}
	return s.Client.Init(ctx, TargetOf(sb), runtime.InitRequest{AccessToken: token, Before: verify, InBackground: true})
}

// nowInPool returns a sandbox as it is now, and ErrObsolete unless it still waits in its pool for
// what it waited for when it was queued.
func (s *Setup) nowInPool(ctx context.Context, queued *v1alpha1.Sandbox, its podRun) (*v1alpha1.Sandbox, error) {
	now, err := s.Sandbox(ctx, queued.Namespace, queued.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox: %w", err)
	}
	if now != nil && now.UID == queued.UID && version(now) < version(queued) {
		now = queued // the cache has not heard yet
	}
	if now == nil || now.UID != queued.UID {
		return nil, ErrObsolete
	}
	if is, awaits := podRunOf(now); !awaits || is != its {
		return nil, ErrObsolete
	}
	return now, nil
}
