// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

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
	// Verdicts are remembered while a template is being worked on and rolled out.
	// The rules of a cluster change seldom; what is there in a namespace (quotas,
	// service accounts) or out of reach changes at any time, and is remembered only
	// for as long as a write may be tried again.
	rememberVerdict = 5 * time.Minute
	rememberDoubt   = 10 * time.Second
	remembered      = 4096
	// maxFaults is how many faults, and how many warnings, of a pod are told and kept.
	maxFaults = 20

	dryRunPrefix = "sandlot-dry-run-"
	dryRunOwner  = "sandlot-apiserver"
)

// Verdict is what a cluster says of a pod.
type Verdict struct {
	// Faults are the fields that no pod of this cluster may have so.
	Faults []metav1.StatusCause
	// Warnings are everything else: what the cluster warns of, what it refuses for
	// now (a quota, pod security, a webhook), or that it could not be asked.
	Warnings []string
}

// DryRun asks a cluster by creating pods in a dry run.
type DryRun struct {
	pods rest.Interface
	seen *cache.LRUExpireCache
}

// NewDryRun returns a DryRun. pods is a client of core/v1.
func NewDryRun(pods rest.Interface, clock clock.PassiveClock) *DryRun {
	return &DryRun{pods: pods, seen: cache.NewLRUExpireCacheWithClock(remembered, clock)}
}

// Pod returns the cluster's verdict on a pod, which may be remembered.
func (d *DryRun) Pod(ctx context.Context, pod *unstructured.Unstructured) Verdict {
	body, err := json.Marshal(pod.Object)
	if err != nil {
		return Verdict{Warnings: []string{"its pod cannot be written as JSON: " + err.Error()}}
	}
	key := sha256.Sum256(body) // the namespace is part of it
	if verdict, ok := d.seen.Get(key); ok {
		return verdict.(Verdict)
	}
	warned, err := d.create(ctx, pod.GetNamespace(), body)
	verdict, sure := verdictOf(err)
	verdict.Warnings = append(verdict.Warnings, warned...)
	verdict.Warnings = verdict.Warnings[:min(len(verdict.Warnings), maxFaults)]
	switch {
	case sure:
		d.seen.Add(key, verdict, rememberVerdict)
	case !errors.Is(ctx.Err(), context.Canceled): // or it says nothing about the cluster
		d.seen.Add(key, verdict, rememberDoubt)
	}
	return verdict
}

func (d *DryRun) create(ctx context.Context, namespace string, body []byte) ([]string, error) {
	var warned warnings
	err := d.pods.Post().Namespace(namespace).Resource("pods").
		Param("dryRun", metav1.DryRunAll).
		Param("fieldValidation", metav1.FieldValidationWarn).
		Param("fieldManager", dryRunOwner).
		SetHeader("Content-Type", "application/json").
		WarningHandlerWithContext(&warned).
		Body(body).Do(ctx).Error()
	return warned.texts, err
}

// verdictOf reads an answer, and says whether it is one that would be given again.
func verdictOf(err error) (verdict Verdict, sure bool) {
	if err == nil {
		return Verdict{}, true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || unanswered(status.Status().Code) {
		return Verdict{Warnings: []string{"the cluster could not be asked: " + err.Error()}}, false
	}
	if apierrors.IsInvalid(err) {
		// Policies and webhooks answer like this as well, but name no field. They may
		// say something else tomorrow.
		if faults := faultsOf(status.Status().Details); len(faults) > 0 {
			return Verdict{Faults: faults}, true
		}
	}
	return Verdict{Warnings: []string{fmt.Sprintf("the cluster refuses its pods for now: %v", err)}}, false
}

// unanswered tells the answers that are about the cluster and not about the pod.
func unanswered(code int32) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusUnauthorized
}

func faultsOf(details *metav1.StatusDetails) []metav1.StatusCause {
	if details == nil {
		return nil
	}
	var faults []metav1.StatusCause
	for _, cause := range details.Causes {
		if len(faults) == maxFaults {
			break
		}
		if cause.Field != "" {
			faults = append(faults, cause)
		}
	}
	return faults
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
