// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestAudit finds a claim in the audit logs of both hops under one id, with who
// claimed; ours says what they got.
func TestAudit(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	config := as(t, user).config
	ids := &auditIDs{}
	config.Wrap(ids.wrap)
	who := clientsFor(t, config)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
		return err
	})

	wanted := builders.Claim("", 2)
	wanted.GenerateName = "run-"
	claim := who.claim(t, ns, wanted)
	id := ids.last()
	if id == "" {
		t.Fatal("the answer has no audit id")
	}

	outer := findEvents(t, id, plane.AuditLog())
	var ours []string
	for i := range sandlot.APIServers() {
		ours = append(ours, sandlot.AuditLog(i))
	}
	inner := findEvents(t, id, ours...)
	for hop, event := range map[string]auditv1.Event{"kube-apiserver": outer, "sandlot-apiserver": inner} {
		if event.User.Username != user || event.Verb != "create" || event.ObjectRef == nil || event.ObjectRef.Resource != "sandboxclaims" ||
			event.ObjectRef.Namespace != ns || event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusCreated {
			t.Errorf("%s: the event is %+v", hop, event)
		}
	}
	for key, want := range map[string]string{
		"sandlot.io/claim":              claim.Name,
		"sandlot.io/claimed-by":         user,
		"sandlot.io/sandboxes":          claim.Status.Sandboxes[0].Name + "," + claim.Status.Sandboxes[1].Name,
		"authorization.k8s.io/decision": "allow",
	} {
		if got := inner.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	if !strings.Contains(inner.Annotations["authorization.k8s.io/reason"], "sandlot-claimer") {
		t.Errorf("the event does not say which role allowed it: %v", inner.Annotations)
	}
}

// TestAuditOfARelease finds who gave back what.
func TestAuditOfARelease(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	claim := c.claim(t, ns, builders.Claim("run", 1))
	ids := &auditIDs{}
	config := rest.CopyConfig(c.config)
	config.Wrap(ids.wrap)

	// The body may be empty, for kubectl create --raw.
	path := "/apis/agents.kruise.io/v1alpha1/namespaces/" + ns + "/sandboxclaims/run/release"
	if _, err := clientsFor(t, config).kube.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte("{}")).DoRaw(t.Context()); err != nil {
		t.Fatal(err)
	}

	id := ids.last()
	findEvents(t, id, plane.AuditLog())
	var ours []string
	for i := range sandlot.APIServers() {
		ours = append(ours, sandlot.AuditLog(i))
	}
	event := findEvents(t, id, ours...)
	if event.ObjectRef == nil || event.ObjectRef.Subresource != "release" || event.Annotations["sandlot.io/claim"] != "run" ||
		event.Annotations["sandlot.io/sandboxes"] != claim.Status.Sandboxes[0].Name {
		t.Errorf("the event is %+v", event)
	}
}

// TestTokensInTheAnswer: through the aggregator too, a create answers with access tokens, to who
// may read them, and the audit logs of both hops tell who got them.
func TestTokensInTheAnswer(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	plain, trusted := uniqueUser(t, "ann"), uniqueUser(t, "bob")
	for _, user := range []string{plain, trusted} {
		grant(t, ns, "sandlot-claimer", user)
	}
	grant(t, ns, "sandlot-runtime-user", trusted)
	ids := &auditIDs{}
	claim := func(user, name string) (map[string]string, *v1alpha1.SandboxClaim, error) {
		config := rest.CopyConfig(as(t, user).config)
		config.Wrap(ids.wrap)
		config.Wrap(client.ReadAccessTokens)
		wanted, tokens := builders.Claim(name, 1), map[string]string{}
		wanted.Namespace = ns
		made, err := client.Create(t.Context(), clientsFor(t, config), wanted, client.Options{AccessTokens: tokens})
		return tokens, made, err
	}

	var made *v1alpha1.SandboxClaim
	var tokens map[string]string
	expect.Eventually(t.Context(), t, func(context.Context) (err error) { // roles take a moment to be known
		tokens, made, err = claim(trusted, "trusted")
		return err
	})
	id := ids.last()
	told, err := client.RuntimeAccess(t.Context(), c, made)
	if err != nil || len(told) != 1 || len(tokens) != 1 || told[0].AccessToken == "" || tokens[told[0].Name] != told[0].AccessToken {
		t.Errorf("the create told %v, the subresource %+v, %v", tokens, told, err)
	}
	if outer := findEvents(t, id, plane.AuditLog()); !strings.Contains(outer.RequestURI, "runtimeAccess=true") {
		t.Errorf("kube-apiserver: the event is of %s", outer.RequestURI)
	}
	var ours []string
	for i := range sandlot.APIServers() {
		ours = append(ours, sandlot.AuditLog(i))
	}
	inner := findEvents(t, id, ours...)
	if got := inner.Annotations["sandlot.io/runtime-access"]; got != made.Status.Sandboxes[0].Name {
		t.Errorf("sandlot-apiserver: tokens of %q were told", got)
	}

	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // until the role of claimers is known
		_, err := as(t, plain).SandboxClaims(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	if tokens, _, err := claim(plain, "plain"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "sandboxclaims/runtimeaccess") || len(tokens) > 0 {
		t.Errorf("a claimer without the right: %v, %v", tokens, err)
	}
	if _, err := c.SandboxClaims(ns).Get(t.Context(), "plain", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim that was refused: %v", err)
	}
}

// auditIDs remembers the audit id of the last answer.
type auditIDs struct {
	mu sync.Mutex
	id string
}

func (a *auditIDs) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err == nil {
			a.mu.Lock()
			a.id = response.Header.Get("Audit-Id")
			a.mu.Unlock()
		}
		return response, err
	})
}

func (a *auditIDs) last() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

// findEvents waits for the one event of an answered request in one of the logs.
func findEvents(t testing.TB, id string, logs ...string) auditv1.Event {
	t.Helper()
	var found []auditv1.Event
	expect.Eventually(t.Context(), t, func(context.Context) error {
		found = nil
		for _, log := range logs {
			file, err := os.Open(log)
			if err != nil {
				return err
			}
			defer file.Close()
			lines := bufio.NewScanner(file)
			lines.Buffer(nil, 1<<22)
			for lines.Scan() {
				var event auditv1.Event
				if !bytes.Contains(lines.Bytes(), []byte(id)) || json.Unmarshal(lines.Bytes(), &event) != nil {
					continue // a line that is being written, perhaps
				}
				if event.Stage == auditv1.StageResponseComplete {
					found = append(found, event)
				}
			}
			if err := lines.Err(); err != nil {
				return err
			}
		}
		if len(found) != 1 {
			return fmt.Errorf("%d events of %s in %v", len(found), id, logs)
		}
		return nil
	})
	return found[0]
}
