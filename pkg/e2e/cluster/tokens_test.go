// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestFloodOfBadTokens: one machine presents random tokens at our own port as fast as it
// can. Most are refused without asking the cluster, and a service account that comes from
// another machine with a new token claims meanwhile.
func TestFloodOfBadTokens(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	account := serviceAccount(t, ns, "runner")
	grant(t, ns, "sandlot-claimer", "system:serviceaccount:"+ns+":runner")

	direct := c.direct(t, 0).config
	config := rest.AnonymousClientConfig(direct)
	config.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const workers, each = 20, 50
	var mu sync.Mutex
	answers := map[int]int{}
	var flood sync.WaitGroup
	for worker := range workers {
		flood.Go(func() {
			for i := range each {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/apis/agents.kruise.io/v1alpha1", nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", fmt.Sprintf("Bearer bad-%d-%d", worker, i))
				response, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				mu.Lock()
				answers[response.StatusCode]++
				mu.Unlock()
			}
		})
	}
	who := account.direct(t, 0)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a role takes a moment to be known
		_, err := who.SandboxClaims(ns).Create(ctx, builders.Claim("mine", 1), metav1.CreateOptions{})
		return err
	})
	flood.Wait()
	refused, asked := answers[http.StatusTooManyRequests], answers[http.StatusUnauthorized]
	if refused+asked != workers*each || refused < workers*each/2 {
		t.Errorf("answered %v", answers)
	}
}
