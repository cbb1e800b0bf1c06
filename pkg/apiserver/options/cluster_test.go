// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// A server that belongs to a cluster asks it who someone is and what they may
// do, trusts its front proxy, and does not write to namespaces that it does not
// have.
func TestWithCluster(t *testing.T) {
	cluster := newFakeCluster(t)
	server := testutil.Start(t, testutil.WithOptions(func(o *options.Options) {
		o.Alone = false
		o.CoreAPI.CoreAPIKubeconfigPath = cluster.kubeconfig
	}))

	token := func(user string) *rest.Config {
		config := rest.AnonymousClientConfig(server.Config)
		config.BearerToken = user + "-token"
		return config
	}
	proxied := func(user string) *rest.Config {
		config := rest.AnonymousClientConfig(server.Config)
		config.CertData, config.KeyData = cluster.proxy.Admin.Cert, cluster.proxy.Admin.Key
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set("X-Remote-User", user)
				return next.RoundTrip(req)
			})
		})
		return config
	}
	anything := func(error) bool { return true }
	cases := map[string]struct {
		config    *rest.Config
		namespace string
		want      func(error) bool // nil: no error
	}{
		"alice, by token":          {config: token("alice"), namespace: "default"},
		"bob may not":              {config: token("bob"), namespace: "default", want: apierrors.IsForbidden},
		"mallory is unknown":       {config: token("mallory"), namespace: "default", want: apierrors.IsUnauthorized},
		"anonymous":                {config: rest.AnonymousClientConfig(server.Config), namespace: "default", want: apierrors.IsUnauthorized},
		"alice, through the proxy": {config: proxied("alice"), namespace: "default"},
		"bob, through the proxy":   {config: proxied("bob"), namespace: "default", want: apierrors.IsForbidden},
		"masters need no asking":   {config: server.Config, namespace: "default"},
		"no such namespace":        {config: token("alice"), namespace: "nowhere", want: apierrors.IsNotFound},
		"no namespace to speak of": {config: token("alice"), namespace: "Not A Name", want: anything},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client, err := versioned.NewForConfig(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
			if err := json.Unmarshal([]byte(`{"template":{"spec":{"containers":[{"name":"main","image":"python"}]}}}`), &template.Spec); err != nil {
				t.Fatal(err)
			}
			_, err = client.AgentsV1alpha1().SandboxTemplates(tc.namespace).Create(t.Context(), template, metav1.CreateOptions{})
			if tc.want == nil && err != nil || tc.want != nil && (err == nil || !tc.want(err)) {
				t.Errorf("unexpected: %v", err)
			}
		})
	}

	// Decisions are cached: what was allowed once costs no question again.
	asked := cluster.reviews.Load()
	client, err := versioned.NewForConfig(token("alice"))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := client.AgentsV1alpha1().SandboxSets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := cluster.reviews.Load() - asked; got > 1 {
		t.Errorf("the cluster was asked %d times for one decision", got)
	}
}

// fakeCluster is as much of a kube-apiserver as an aggregated server looks at.
type fakeCluster struct {
	kubeconfig string
	proxy      *localpki.PKI // its CA is the front proxy's
	reviews    atomic.Int32  // how often it was asked for authorization
}

func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	c := &fakeCluster{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var err error
	if c.proxy, err = localpki.Ensure(t.TempDir(), nil, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		server.CloseClientConnections() // informers watch for ever
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *fakeCluster) serve(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	switch path := req.URL.Path; {
	case path == "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication":
		answer(w, http.StatusOK, c.authenticationConfig())
	case path == "/apis/admissionregistration.k8s.io/v1":
		answer(w, http.StatusOK, &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/v1", APIResources: []metav1.APIResource{
			{Name: "mutatingadmissionpolicies"}, {Name: "validatingadmissionpolicies"},
		}})
	case path == "/api/v1/namespaces/default":
		answer(w, http.StatusOK, map[string]any{"metadata": map[string]any{"name": "default"}})
	case strings.HasPrefix(path, "/api/v1/namespaces/") && strings.Count(path, "/") == 4:
		answer(w, http.StatusNotFound, apierrors.NewNotFound(v1alpha1.Resource("namespaces"), "").Status())
	case req.Method == http.MethodPost && strings.HasSuffix(path, "/subjectaccessreviews"):
		c.review(w, req)
	case req.Method == http.MethodPost && strings.HasSuffix(path, "/tokenreviews"):
		reviewToken(w, req)
	case query.Get("sendInitialEvents") == "true": // the informer lists instead
		answer(w, http.StatusUnprocessableEntity, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		<-req.Context().Done()
	case path == "/api/v1/namespaces/kube-system/configmaps":
		answer(w, http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{c.authenticationConfig()}})
	case req.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	default:
		answer(w, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}
}

func (c *fakeCluster) authenticationConfig() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "extension-apiserver-authentication", "namespace": "kube-system"},
		"data": map[string]string{
			"requestheader-client-ca-file":       string(c.proxy.CA),
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
			"requestheader-allowed-names":        `[]`,
		},
	}
}

func (c *fakeCluster) review(w http.ResponseWriter, req *http.Request) {
	c.reviews.Add(1)
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status.Allowed = review.Spec.User == "alice"
	answer(w, http.StatusCreated, review)
}

func reviewToken(w http.ResponseWriter, req *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	user := strings.TrimSuffix(review.Spec.Token, "-token")
	if user == "alice" || user == "bob" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: user}}
	}
	answer(w, http.StatusCreated, review)
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(fmt.Sprintf("a fake answer cannot be encoded: %v", err))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
