// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/recycle"
	"github.com/sandlot-io/sandlot/pkg/controllers/sandbox/service"
	"github.com/sandlot-io/sandlot/pkg/inplace"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	// FailImage is the image that makes a simulated sandbox fail instead of run, in
	// any of its containers. It is for trying out what happens on failures:
	//
	//	spec: {template: {spec: {containers: [{name: c, image: simulated.sandlot.io/fail}]}}}
	FailImage = "simulated.sandlot.io/fail"
	// NodeName is the node that simulated sandboxes run on.
	NodeName = "simulated"

	runningMessage = "simulated: no pod is behind this sandbox"
	failedMessage  = "simulated: the image " + FailImage + " always fails"
)

// statusAfter returns the status of a sandbox after a step. template is its pod template,
// which a start needs.
func statusAfter(s step, sandbox *v1alpha1.Sandbox, template *runtime.RawExtension, now time.Time) (v1alpha1.SandboxStatus, error) {
	status, err := observed(sandbox)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	set := setter(&status, sandbox.Generation, now)
	switch s {
	case observe:
		setServiceFQDN(&status, sandbox)
		return status, nil
	case lost:
		return statusLost(&status, sandbox.Generation, now), nil
	case start:
		return statusStarted(&status, sandbox, template, now)
	case pause:
		status.Phase, status.Message = v1alpha1.SandboxPaused, ""
		status.PodInfo, status.NodeName, status.SandboxIP = v1alpha1.PodInfo{}, "", ""
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SandboxConditionResumed)
		set(v1alpha1.SandboxConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonStopPauseSucceed, "")
		set(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodReady, "The sandbox is paused")
		setServiceFQDN(&status, sandbox)
		return status, nil
	case clean:
		recycle.Clean(&status, sandbox.Generation, now)
		return status, nil
	case resume:
		status.Phase = v1alpha1.SandboxResuming
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SandboxConditionPaused)
		set(v1alpha1.SandboxConditionResumed, metav1.ConditionFalse, v1alpha1.ReasonCreatePod, "")
		set(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPodReady, "The sandbox is being resumed")
		claims.BeginSetupAgain(sandbox, &status, now)
		return status, nil
	case settingUp: // for too long
		claims.EndSetupAgain(&status, claims.SetupOverdue(), now)
		runs(&status, sandbox, now)
		return status, nil
	case resumed:
		if !claims.SetsUpAgain(sandbox) {
			claims.BeginSetupAgain(sandbox, &status, now)
		}
		runs(&status, sandbox, now)
		return status, nil
	}
	return status, nil
}

// statusStarted returns the status of a sandbox that has started, or failed to, from the
// one before.
func statusStarted(before *v1alpha1.SandboxStatus, sandbox *v1alpha1.Sandbox, template *runtime.RawExtension, now time.Time) (v1alpha1.SandboxStatus, error) {
	status := *before
	set := setter(&status, sandbox.Generation, now)
	fails, err := wantsToFail(template)
	if err != nil {
		return v1alpha1.SandboxStatus{}, fmt.Errorf("reading the template of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	if fails {
		status.Phase, status.Message = v1alpha1.SandboxFailed, failedMessage
		set(v1alpha1.SandboxConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed, failedMessage)
		if progress, aborted := inplace.Aborted(&status, inplace.GoalOf(sandbox)); aborted {
			c := progress.Condition()
			set(c.Type, c.Status, c.Reason, c.Message)
		}
		if sandbox.Status.Phase == v1alpha1.SandboxRecycling {
			recycle.Fail(&status, v1alpha1.ReasonRecyclingFailed, failedMessage, sandbox.Generation, now)
		}
		return status, nil
	}
	addressed(&status, sandbox)
	if status.Phase == v1alpha1.SandboxResuming && claims.SetsUpAgain(sandbox) {
		claims.BeginSetupAgain(sandbox, &status, now)
		return status, nil
	}
	runs(&status, sandbox, now)
	return status, nil
}

// runs makes a status that of a sandbox that runs.
func runs(status *v1alpha1.SandboxStatus, sandbox *v1alpha1.Sandbox, now time.Time) {
	set := setter(status, sandbox.Generation, now)
	switch status.Phase {
	case v1alpha1.SandboxResuming:
		set(v1alpha1.SandboxConditionResumed, metav1.ConditionTrue, v1alpha1.ReasonCreatePod, "")
	case v1alpha1.SandboxRecycling:
		recycle.Finish(status, &sandbox.Spec, sandbox.Generation, now)
	}
	status.Phase, status.Message = v1alpha1.SandboxRunning, runningMessage
	set(v1alpha1.SandboxConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodReady, "")
	setServiceFQDN(status, sandbox)
}

// setServiceFQDN sets the name of the Service that the sandbox would have in a cluster. It clears
// the name of a sandbox that has expired, and keeps it if spec.service is not set.
func setServiceFQDN(status *v1alpha1.SandboxStatus, sandbox *v1alpha1.Sandbox) {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionReady)
	switch wanted := sandbox.Spec.Service; {
	case ready != nil && ready.Reason == v1alpha1.ReasonSandboxExpired:
		status.ServiceFQDN = ""
	case wanted == nil:
	case *wanted && v1alpha1.CheckServiceName(wanted, sandbox.Name) == nil:
		status.ServiceFQDN = service.FQDN(sandbox, "")
	default:
		status.ServiceFQDN = ""
	}
}

// addressed gives a sandbox an address.
func addressed(status *v1alpha1.SandboxStatus, sandbox *v1alpha1.Sandbox) {
	status.SandboxIP = addressOf(sandbox.UID)
	status.NodeName = NodeName
	status.PodInfo.PodIP, status.PodInfo.NodeName = status.SandboxIP, NodeName
	status.PodInfo.PodUID = sandbox.UID // there is no pod to have one of its own
}

// setter returns a function that sets conditions of a status.
func setter(status *v1alpha1.SandboxStatus, generation int64, now time.Time) func(kind string, value metav1.ConditionStatus, reason, message string) {
	return func(kind string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
}

// observed returns a copy of the status of a sandbox, with its spec observed.
func observed(sandbox *v1alpha1.Sandbox) (v1alpha1.SandboxStatus, error) {
	revision, err := podtemplate.SandboxRevision(sandbox)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	status := *sandbox.Status.DeepCopy()
	claims.Observe(&status, sandbox.Generation)
	status.UpdateRevision = revision
	return status, nil
}

// statusWaiting returns the status of a sandbox that cannot start for want of a template.
func statusWaiting(sandbox *v1alpha1.Sandbox, reason string, why error, now time.Time) (v1alpha1.SandboxStatus, error) {
	status, err := observed(sandbox)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	status.Phase, status.Message = cmp.Or(status.Phase, v1alpha1.SandboxPending), why.Error()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: why.Error(),
		ObservedGeneration: sandbox.Generation, LastTransitionTime: metav1.NewTime(now),
	})
	return status, nil
}

// wantsToFail reports whether a container has FailImage.
func wantsToFail(template *runtime.RawExtension) (bool, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return false, err
	}
	var pod struct {
		Spec struct {
			Containers []struct {
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return false, err
	}
	for _, container := range pod.Spec.Containers {
		if container.Image == FailImage {
			return true, nil
		}
	}
	return false, nil
}

// addressOf derives an address from a UID: loopback, so that nothing leaves the
// machine, outside 127.0.0.0/16, where the machine's own services listen, and
// mostly different for different sandboxes.
func addressOf(uid types.UID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid))
	h := sum.Sum32()
	return fmt.Sprintf("127.%d.%d.%d", 1+h>>16%254, h>>8&0xff, 1+h%254)
}
