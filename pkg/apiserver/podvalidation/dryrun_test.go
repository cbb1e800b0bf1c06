// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
)

// Results are kept by the thousand: none may be big.
func TestResultsAreBounded(t *testing.T) {
	var errs field.ErrorList
	for i := range 10 * maxCauses {
		errs = append(errs, field.Required(field.NewPath("spec", "containers").Index(i), ""))
	}
	got, sure := resultOf(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "x", errs))
	if len(got.Causes) != maxCauses || !sure {
		t.Errorf("%d causes, sure: %v", len(got.Causes), sure)
	}
}

func TestResultOf(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	pods := schema.GroupResource{Resource: "pods"}
	policy := apierrors.NewInvalid(kind, "x", nil)
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "no sandboxes on Sundays"}}
	tests := map[string]struct {
		err      error
		causes   []metav1.StatusCause
		warnings []string
		sure     bool
	}{
		"taken": {sure: true},
		"invalid": {
			err: apierrors.NewInvalid(kind, "x", field.ErrorList{
				field.Invalid(field.NewPath("spec", "nodeName"), "A b", "no name"), field.Required(field.NewPath("spec", "os"), ""),
			}),
			causes: []metav1.StatusCause{
				{Type: "FieldValueInvalid", Message: `Invalid value: "A b": no name`, Field: "spec.nodeName"},
				{Type: "FieldValueRequired", Message: "Required value", Field: "spec.os"},
			},
			sure: true,
		},
		"refused by a policy":   {err: policy, warnings: []string{"the cluster refuses its pods for now: "}},
		"invalid, without more": {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}}, warnings: []string{"the cluster refuses its pods for now: "}},
		"forbidden":             {err: apierrors.NewForbidden(pods, "x", errors.New("exceeded quota")), warnings: []string{`the cluster refuses its pods for now: pods "x" is forbidden: exceeded quota`}},
		"malformed":             {err: apierrors.NewBadRequest("what"), warnings: []string{"the cluster refuses its pods for now: what"}},
		"no namespace":          {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), warnings: []string{"the cluster refuses its pods for now: "}},
		"broken webhook":        {err: apierrors.NewInternalError(errors.New("failed calling webhook")), warnings: []string{"the cluster could not be asked: Internal error occurred: failed calling webhook"}},
		"busy":                  {err: apierrors.NewTooManyRequests("later", 1), warnings: []string{"the cluster could not be asked: later"}},
		"unknown to it":         {err: apierrors.NewUnauthorized("who are you"), warnings: []string{"the cluster could not be asked: who are you"}},
		"timeout":               {err: context.DeadlineExceeded, warnings: []string{"the cluster could not be asked: context deadline exceeded"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, sure := resultOf(tc.err)
			if diff := cmp.Diff(tc.causes, got.Causes); diff != "" || sure != tc.sure {
				t.Errorf("sure: %v; causes (-want +got):\n%s", sure, diff)
			}
			expect(t, got.Warnings, tc.warnings)
		})
	}
}

func TestUnder(t *testing.T) {
	errs := under(field.NewPath("spec", "patch"), []metav1.StatusCause{
		{Type: "FieldValueInvalid", Message: `Invalid value: "A b": no name`, Field: "spec.nodeName"},
		{Type: "FieldValueRequired", Message: "Required value", Field: "spec.os"},
		{Type: "SomethingNew", Message: "of tomorrow", Field: "spec.future"},
		{Type: "FieldValueForbidden", Message: "Forbidden: never", Field: "metadata.labels[a]"},
		{Type: "FieldValueNotSupported", Message: `Unsupported value: "a": supported values: "b"`, Field: "spec.dnsPolicy"},
	})
	expect(t, flat(errs, nil), []string{
		`spec.patch.spec.nodeName: Invalid value: "A b": no name`,
		"spec.patch.spec.os: Required value",
		"spec.patch.spec.future: Invalid value: of tomorrow",
		"spec.patch.metadata.labels[a]: Forbidden: never",
		`spec.patch.spec.dnsPolicy: Unsupported value: "a": supported values: "b"`,
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUnreachable: the cluster is asked again soon, but not for the same write.
func TestUnreachable(t *testing.T) {
	asked := 0
	client, err := corev1client.NewForConfig(&rest.Config{
		Host: "https://cluster.invalid",
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			if got := r.URL.Query(); r.Method != http.MethodPost || got.Get("dryRun") != "All" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			return nil, errors.New("no route")
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	dryRun := NewDryRun(client.RESTClient(), clock)
	pod := func(image string) *unstructured.Unstructured {
		p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"image": image}}}
		p.SetNamespace(namespace)
		return p
	}
	ask := func(ctx context.Context, image string, want int) {
		t.Helper()
		result := dryRun.Pod(ctx, pod(image))
		if len(result.Causes) > 0 {
			t.Errorf("causes %v", result.Causes)
		}
		expect(t, result.Warnings, []string{"the cluster could not be asked: "})
		if asked != want {
			t.Errorf("asked %d times, want %d", asked, want)
		}
	}
	ask(t.Context(), "a", 1)
	ask(t.Context(), "a", 1)
	ask(t.Context(), "b", 2)
	clock.Step(doubtTTL + time.Second)
	ask(t.Context(), "a", 3)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask(gone, "c", asked) // the client went away, which is not remembered
	ask(t.Context(), "c", asked+1)
}
