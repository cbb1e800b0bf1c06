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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

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
