// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// Results are remembered while a template is being worked on and rolled out.
	// The rules of a cluster change seldom; what is there in a namespace (quotas,
	// service accounts) or out of reach changes at any time, and is remembered only
	// for as long as a write may be tried again.
	resultTTL  = 5 * time.Minute
	doubtTTL   = 10 * time.Second
	maxResults = 4096
	// maxCauses bounds the causes, and the warnings, that a Result has.
	maxCauses = 20

	// maxAtOnce is how many dry runs a server has on the way at a time, and
	// maxAtOnceOfNamespace those for one namespace. They share what the server may ask of the
	// cluster with quotas and authorization, for which all requests wait.
	maxAtOnce, maxAtOnceOfNamespace = 16, 4

	dryRunPrefix = "sandlot-dry-run-"
	dryRunOwner  = "sandlot-apiserver"
)

// Result is the answer of a cluster about a pod.
type Result struct {
	// Causes name the invalid fields.
	Causes []metav1.StatusCause
	// Warnings are everything else: what the cluster warns of, what it refuses for
	// now (a quota, pod security, a webhook), or that it could not be asked.
	Warnings []string
}

// DryRun asks a cluster by creating pods in a dry run.
type DryRun struct {
	pods   rest.Interface
	seen   *cache.LRUExpireCache
	places *places
}

// NewDryRun returns a DryRun. pods is a client of core/v1.
func NewDryRun(pods rest.Interface, clock clock.PassiveClock) *DryRun {
	return &DryRun{pods: pods, seen: cache.NewLRUExpireCacheWithClock(maxResults, clock), places: newPlaces()}
}

// Pod implements Pods. The result may be remembered. While too many are asked about, it waits
// until ctx is done.
func (d *DryRun) Pod(ctx context.Context, pod *unstructured.Unstructured) Result {
	body, err := json.Marshal(pod.Object)
	if err != nil {
		return Result{Warnings: []string{"its pod cannot be written as JSON: " + err.Error()}}
	}
	key := sha256.Sum256(body) // the namespace is part of it
	if result, ok := d.seen.Get(key); ok {
		return result.(Result)
	}
	warned, err := d.create(ctx, pod.GetNamespace(), body)
	result, sure := resultOf(err)
	result.Warnings = append(result.Warnings, warned...)
	result.Warnings = result.Warnings[:min(len(result.Warnings), maxCauses)]
	switch {
	case sure:
		d.seen.Add(key, result, resultTTL)
	case !errors.Is(ctx.Err(), context.Canceled): // or it says nothing about the cluster
		d.seen.Add(key, result, doubtTTL)
	}
	return result
}

func (d *DryRun) create(ctx context.Context, namespace string, body []byte) ([]string, error) {
	leave, err := d.places.take(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("too many pods are asked about: %w", err)
	}
	defer leave()
	var warned warnings
	err = d.pods.Post().Namespace(namespace).Resource("pods").
		Param("dryRun", metav1.DryRunAll).
		Param("fieldValidation", metav1.FieldValidationWarn).
		Param("fieldManager", dryRunOwner).
		SetHeader("Content-Type", "application/json").
		WarningHandlerWithContext(&warned).
		Body(body).Do(ctx).Error()
	return warned.texts, err
}

// resultOf reads an answer, and reports whether the same would be answered again.
func resultOf(err error) (result Result, sure bool) {
	if err == nil {
		return Result{}, true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || unanswered(status.Status().Code) {
		return Result{Warnings: []string{"the cluster could not be asked: " + err.Error()}}, false
	}
	if apierrors.IsInvalid(err) {
		// Policies and webhooks answer like this as well, but name no field. They may
		// say something else tomorrow.
		if causes := causesOf(status.Status().Details); len(causes) > 0 {
			return Result{Causes: causes}, true
		}
	}
	return Result{Warnings: []string{fmt.Sprintf("the cluster refuses its pods for now: %v", err)}}, false
}

// unanswered reports whether an answer is about the cluster and not about the pod.
func unanswered(code int32) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}

func causesOf(details *metav1.StatusDetails) []metav1.StatusCause {
	if details == nil {
		return nil
	}
	var causes []metav1.StatusCause
	for _, cause := range details.Causes {
		if len(causes) == maxCauses {
			break
		}
		if cause.Field != "" {
			causes = append(causes, cause)
		}
	}
	return causes
}

// warnings are the warnings of one answer.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	if code != 299 || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}
