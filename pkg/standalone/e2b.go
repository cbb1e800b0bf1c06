// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/gateway/server"
)

// e2bTeam is the namespace of the one key that is made here.
const e2bTeam = "default"

func newE2BOptions() server.Options {
	o := server.NewOptions()
	o.AllowLoopback = true // simulated sandboxes have addresses of this machine
	return o
}

// startE2B serves the E2B API beside the server, if that is asked for, and prints what its
// clients have to know.
func startE2B(s *stack, o *Options, api *apiserver.Server, dir string, out io.Writer) error {
	if o.E2BAddress == "" {
		return nil
	}
	kept, err := apikeys.OpenFile(dir, clock.RealClock{})
	if err != nil {
		return err
	}
	known := apikeys.New(kept)
	gateway, err := server.New(server.Config{
		Options: o.E2B, RESTConfig: finishing(api.LoopbackClientConfig()), Keys: known,
		// Without a cluster no other user may do anything.
		ImpersonateGroups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
	})
	if err != nil {
		return fmt.Errorf("E2B API: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(s.run, "tcp", o.E2BAddress)
	if err != nil {
		return fmt.Errorf("--e2b-address: %w", err)
	}
	s.start("E2B API", func(ctx context.Context) error {
		below, stop := context.WithCancel(context.WithoutCancel(ctx))
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			gateway.Watch(below)
			return nil
		})
		group.Go(func() error {
			defer stop()
			return gateway.Serve(ctx, listener, nil)
		})
		return group.Wait()
	})
	err = wait.PollUntilContextTimeout(s.run, readyInterval, readyTimeout, true, func(context.Context) (bool, error) { return gateway.Ready() == nil, nil })
	if err != nil {
		if s.run.Err() != nil {
			return nil //nolint:nilerr // it is stopped, and its end says why
		}
		return fmt.Errorf("E2B API is not ready after %s: %w", readyTimeout, gateway.Ready())
	}
	raw, err := keyOf(s.run, known, filepath.Join(dir, "e2b-key"))
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(out, "For the E2B SDK, with sandboxes of the namespace %s:\n", e2bTeam)
	fmt.Fprintf(out, "export E2B_API_URL=%s E2B_SANDBOX_URL=%s\n", url, url)
	// Without it getHost of the SDK names a host of e2b.app.
	if _, port, err := net.SplitHostPort(listener.Addr().String()); err == nil {
		fmt.Fprintf(out, "export E2B_DOMAIN=localhost:%s\n", port)
	}
	fmt.Fprintf(out, "export E2B_API_KEY=%s\n", raw)
	return nil
}

// keyOf returns the API key that the file keeps from run to run, for its user alone, and
// makes it if there is none or it was revoked.
func keyOf(ctx context.Context, known *apikeys.Keys, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("E2B API key: %w", err)
	}
	if raw := strings.TrimSpace(string(text)); raw != "" {
		_, err := known.Authenticate(ctx, raw)
		if err == nil {
			return raw, nil
		}
		if !errors.Is(err, apikeys.ErrUnknownKey) {
			return "", fmt.Errorf("E2B API key: %w", err)
		}
	}
	_, raw, err := known.Issue(ctx, apikeys.Request{Team: e2bTeam, Name: "sandlot up"})
	if err != nil {
		return "", fmt.Errorf("E2B API key: %w", err)
	}
	if err := os.WriteFile(file, []byte(raw+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("E2B API key: %w", err)
	}
	return raw, nil
}
