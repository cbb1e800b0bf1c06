// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	// FailImage is the image that makes a simulated sandbox fail instead of run, in
	// any of its containers. It is there to try out what happens on failures:
	//
	//	spec: {template: {spec: {containers: [{name: c, image: simulated.sandlot.io/fail}]}}}
	FailImage = "simulated.sandlot.io/fail"
	// NodeName is the node that simulated sandboxes run on.
	NodeName = "simulated"

	runningMessage = "simulated: no pod is behind this sandbox"
	failedMessage  = "simulated: the image " + FailImage + " always fails"
)

// statusOf is the status of a sandbox that starts now.
func statusOf(sandbox *v1alpha1.Sandbox, now time.Time) (v1alpha1.SandboxStatus, error) {
	fails, err := wantsToFail(sandbox)
	if err != nil {
		return v1alpha1.SandboxStatus{}, fmt.Errorf("reading the template of Sandbox %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	revision, err := podtemplate.SandboxRevision(sandbox)
	if err != nil {
		return v1alpha1.SandboxStatus{}, err
	}
	status := *sandbox.Status.DeepCopy()
	status.ObservedGeneration = sandbox.Generation
	status.UpdateRevision = revision
	ready := metav1.Condition{
		Type:               v1alpha1.SandboxConditionReady,
		ObservedGeneration: sandbox.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if fails {
		status.Phase, status.Message = v1alpha1.SandboxFailed, failedMessage
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonStartContainerFailed
		ready.Message = failedMessage
	} else {
		status.Phase, status.Message = v1alpha1.SandboxRunning, runningMessage
		ready.Status, ready.Reason = metav1.ConditionTrue, v1alpha1.ReasonPodReady
		status.SandboxIP = addressOf(sandbox.UID)
		status.NodeName = NodeName
		status.PodInfo.PodIP, status.PodInfo.NodeName = status.SandboxIP, NodeName
		status.PodInfo.PodUID = sandbox.UID // there is no pod to have one of its own
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status, nil
}

// wantsToFail says whether a container has FailImage.
func wantsToFail(sandbox *v1alpha1.Sandbox) (bool, error) {
	raw, err := json.Marshal(sandbox.Spec.Template)
	if err != nil {
		return false, err
	}
	var template struct {
		Spec struct {
			Containers []struct {
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &template); err != nil {
		return false, err
	}
	for _, container := range template.Spec.Containers {
		if container.Image == FailImage {
			return true, nil
		}
	}
	return false, nil
}

// addressOf makes an address out of a UID: loopback, so that nothing leaves the
// machine, outside 127.0.0.0/16, where the machine's own services listen, and
// mostly different for different sandboxes.
func addressOf(uid types.UID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid))
	h := sum.Sum32()
	return fmt.Sprintf("127.%d.%d.%d", 1+h>>16%254, h>>8&0xff, 1+h%254)
}
