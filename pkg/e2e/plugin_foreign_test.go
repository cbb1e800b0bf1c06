// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
)

// testPluginForeign has another user take the names that the plugin is given.
func testPluginForeign(t *testing.T, k *kubectl) {
	k.fillPool(t, 3)
	k.doPlugin(t, "claim", "pool", "--name", "mine")
	mine := k.getClaim(t, "mine").Status.Sandboxes[0].Name
	k.failPlugin(t, []string{"exec", mine, "--", "true"}, "sandbox "+k.namespace+"/"+mine+" is simulated")

	// A claim is given the name of my sandbox.
	k.doPlugin(t, "claim", "pool", "--name", mine)
	theirs := k.getClaim(t, mine).Status.Sandboxes[0].Name
	k.failPlugin(t, []string{"exec", mine, "--", "true"}, "write sbc/"+mine+" or sbx/"+mine)
	k.failPlugin(t, []string{"exec", "sbx/" + mine, "--", "true"}, "sandbox "+k.namespace+"/"+mine+" is simulated")
	k.failPlugin(t, []string{"exec", "sbc/" + mine, "--", "true"}, "sandbox "+k.namespace+"/"+theirs+" is simulated")

	// My claim is replaced by theirs, with my key, before I delete it.
	claims := k.server.Client.AgentsV1alpha1().SandboxClaims(k.namespace)
	upstream, err := url.Parse(k.server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var replaced atomic.Pointer[v1alpha1.SandboxClaim]
	forward := httputil.NewSingleHostReverseProxy(upstream)
	forward.Transport = k.server.HTTP.Transport
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			was, err := claims.Get(r.Context(), "once", metav1.GetOptions{})
			if err == nil {
				err = claims.Delete(r.Context(), "once", metav1.DeleteOptions{})
			}
			if err != nil {
				t.Error(err)
				return
			}
			claim := &v1alpha1.SandboxClaim{Spec: was.Spec}
			claim.Name, claim.Annotations = "once", map[string]string{client.AnnotationKey: was.Annotations[client.AnnotationKey]}
			claim.Spec.TemplateName = "another"
			if claim, err = claims.Create(r.Context(), claim, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			replaced.Store(claim)
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()

	_, stderr, code := k.runPlugin(t, "claim", "pool", "--name", "once", "--rm", "--server", proxy.URL, "--exec", "--", "true")

	if code != 1 || strings.Contains(stderr, "deleted") {
		t.Errorf("ended with %d and said:\n%s", code, stderr)
	}
	if claim := replaced.Load(); claim == nil || k.getClaim(t, "once").UID != claim.UID {
		t.Error("the claim of another user is deleted")
	}
}
