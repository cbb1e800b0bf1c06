// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// TestObjectWithTheMostElements checks that an object with as many keys as an update may give it can still be patched, so
// that its finalizer can be removed, but not be given more, and that what refuses a patch does not quote the object.
func TestObjectWithTheMostElements(t *testing.T) {
	t.Parallel()
	s := testutil.Start(t)
	const path = "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates/large"
	template := builders.Template("large")
	template.APIVersion, template.Kind = v1alpha1.SchemeGroupVersion.String(), "SandboxTemplate"
	template.Finalizers = []string{"example.com/keep"}
	created, err := s.Client.AgentsV1alpha1().SandboxTemplates("default").Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template.ResourceVersion = created.ResourceVersion
	put := func(labels int) error {
		template.Labels = map[string]string{}
		for i := range labels {
			template.Labels[fmt.Sprintf("k%d", i)] = ""
		}
		body, err := json.Marshal(template)
		if err != nil {
			t.Fatal(err)
		}
		return sendOnce(t, s, http.MethodPut, path, "application/json", string(body))
	}
	labels := 9_990
	for err := put(labels); err != nil; err = put(labels) {
		if labels--; labels < 9_970 {
			t.Fatalf("no update is accepted: %.300v", err)
		}
	}
	template.ResourceVersion = version(t, s, path)
	if err := put(labels + 10); !apierrors.IsInvalid(err) { // more than the server has added
		t.Errorf("an update with more labels: %v", err)
	}

	const merge = "application/merge-patch+json"
	var more []string
	for i := range 9000 {
		more = append(more, fmt.Sprintf(`"more%d":""`, i))
	}
	for name, patch := range map[string]struct{ contentType, body string }{
		"patch that adds a label":   {merge, `{"metadata":{"labels":{"more":""}}}`},
		"patch that adds very many": {merge, `{"metadata":{"labels":{` + strings.Join(more, ",") + `}}}`},
		"patch of a wrong type":     {"application/json-patch+json", `[{"op":"replace","path":"/metadata/labels","value":3}]`},
	} {
		err := sendOnce(t, s, "PATCH", path, patch.contentType, patch.body)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code/100 != 4 || !strings.Contains(err.Error(), "and may have") && !strings.Contains(err.Error(), "must be an object") {
			t.Errorf("%s: %.300v", name, err)
			continue
		}
		if text, err := json.Marshal(status.Status()); err != nil || len(text) > 16<<10 {
			t.Errorf("%s: an error of %d bytes, %v", name, len(text), err)
		}
	}

	if err := sendOnce(t, s, http.MethodDelete, path, "application/json", ""); err != nil {
		t.Fatal(err)
	}
	if err := sendOnce(t, s, "PATCH", path, merge, `{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("removing the finalizer: %.300v", err)
	}
	if err := sendOnce(t, s, http.MethodGet, path, "application/json", ""); !apierrors.IsNotFound(err) {
		t.Errorf("the object is not gone: %.300v", err)
	}
}
