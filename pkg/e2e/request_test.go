// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media types of bodies.
const (
	asJSON        = "application/json"
	asYAML        = "application/yaml"
	asApply       = "application/apply-patch+yaml"
	asMergePatch  = "application/merge-patch+json"
	asJSONPatch   = "application/json-patch+json"
	asStrategic   = "application/strategic-merge-patch+json"
	asProtobuf    = "application/vnd.kubernetes.protobuf"
	groupPath     = "/apis/agents.kruise.io/v1alpha1"
	namespacePath = groupPath + "/namespaces/"
)

// answer is a response as it came, without what a client library makes of it.
type answer struct {
	code   int
	header http.Header
	body   string
	// status is the body, where that is a Status.
	status metav1.Status
}

// request sends a request with the credentials of the kubeconfig. path begins
// with /, or is a resource of a namespace.
func (s *server) request(t testing.TB, method, path, mediaType, body string) *answer {
	t.Helper()
	return s.requestBy(t, s.HTTP, method, path, mediaType, body)
}

func (s *server) requestBy(t testing.TB, client *http.Client, method, path, mediaType, body string) *answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the answer: %v", method, path, err)
	}
	a := &answer{code: resp.StatusCode, header: resp.Header, body: string(content)}
	_ = json.Unmarshal(content, &a.status) // where it is one
	return a
}

// names says whether a refusal names a field: as the field of a cause or in its
// message.
func (a *answer) names(field string) bool {
	if strings.Contains(strings.ToLower(a.status.Message), strings.ToLower(field)) {
		return true
	}
	return a.status.Details != nil && slices.ContainsFunc(a.status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == field
	})
}

// refused requires a 4xx Status that names a field, in not too many words.
func (a *answer) refused(t testing.TB, field string) {
	t.Helper()
	if a.code < 400 || a.code > 499 || a.status.Status != metav1.StatusFailure || int(a.status.Code) != a.code {
		t.Errorf("answered with %d, not refused with a 4xx:\n%s", a.code, clip(a.body))
		return
	}
	if !a.names(field) {
		t.Errorf("refused with %d, but %q is not named:\n%s", a.code, field, clip(a.body))
	}
	if len(a.body) > 64<<10 {
		t.Errorf("refused with %d KiB", len(a.body)>>10)
	}
}

func clip(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "..."
	}
	return s
}

// encode returns an object as JSON.
func encode(t testing.TB, obj any) string {
	t.Helper()
	content, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
