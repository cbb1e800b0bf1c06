// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiwarning_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/controllers/apiwarning"
)

// logged has the warnings of requests whose context does not collect them.
type logged struct{ texts []string }

func (l *logged) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	l.texts = append(l.texts, text)
}

// TestWarnings: each caller gets the warnings of its own requests, and the log gets
// the rest.
func TestWarnings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "about `+r.URL.Path+`"`)
		w.Header().Add("Warning", `199 - "not of the API"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1"}`))
	}))
	t.Cleanup(server.Close)
	log := &logged{}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, WarningHandlerWithContext: apiwarning.Handler(log)})
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, name string) {
		t.Helper()
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, ofFirst := apiwarning.Collect(t.Context())
	second, ofSecond := apiwarning.Collect(t.Context())
	get(first, "a")
	get(second, "b")
	get(first, "c")
	get(t.Context(), "d")
	for _, tc := range []struct {
		who       string
		got, want []string
	}{
		{"the first", ofFirst.Texts(), []string{"about /api/v1/namespaces/a", "about /api/v1/namespaces/c"}},
		{"the second", ofSecond.Texts(), []string{"about /api/v1/namespaces/b"}},
		{"the log", log.texts, []string{"about /api/v1/namespaces/d", "not of the API"}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.who, diff)
		}
	}
}
