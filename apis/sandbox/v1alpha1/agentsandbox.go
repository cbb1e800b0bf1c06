// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"hash/fnv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API of kubernetes-sigs/agent-sandbox serves the same objects in other words. What
// follows are the keys and values of that API that stand on stored objects, because
// clients select and route by them.

// Groups of the API of agent-sandbox.
const (
	// AgentsGroup has the kind Sandbox.
	AgentsGroup = "agents.x-k8s.io"
	// ExtensionsGroup has the kinds SandboxClaim, SandboxTemplate and SandboxWarmPool.
	ExtensionsGroup = "extensions.agents.x-k8s.io"
)

// AnnotationAPI says in which API a claim or a sandbox was made, or claimed: AgentsGroup
// for those of agent-sandbox, of which some rules are other ones. It is absent for those
// of this group. Only the server writes it, and never again.
const AnnotationAPI = SandlotKeyPrefix + "api"

// OfAgentSandbox reports whether an object was made in the API of agent-sandbox, or is a
// sandbox that was claimed in it.
func OfAgentSandbox(object metav1.Object) bool {
	return object.GetAnnotations()[AnnotationAPI] == AgentsGroup
}

// AgentKeyPrefix is the prefix of the labels and annotations of agent-sandbox.
const AgentKeyPrefix = AgentsGroup + "/"

// Labels of agent-sandbox.
const (
	// AgentLabelNameHash is NameHash of the name of the sandbox, on its pod, its Service
	// and its volume claims.
	AgentLabelNameHash = AgentKeyPrefix + "sandbox-name-hash"
	// AgentLabelPool is NameHash of the name of the SandboxSet, on a sandbox and its pod
	// as long as they are in its pool.
	AgentLabelPool = AgentKeyPrefix + "warm-pool-sandbox"
	// AgentLabelTemplate is NameHash of the name of the template that a sandbox is made
	// from, on the sandbox and its pod.
	AgentLabelTemplate = AgentKeyPrefix + "sandbox-template-ref-hash"
	// AgentLabelClaimUID is the UID of the claim that holds a sandbox.
	AgentLabelClaimUID = AgentKeyPrefix + "claim-uid"
	// AgentLabelLaunchType is AgentLaunchWarm or AgentLaunchCold on a claimed sandbox.
	AgentLabelLaunchType = AgentKeyPrefix + "launch-type"
	// AgentLabelCreatedBy says which client made a claim; on a sandbox of a pool it is
	// AgentCreatedByController.
	AgentLabelCreatedBy = AgentKeyPrefix + "created-by"
)

// Values of labels of agent-sandbox.
const (
	// AgentLaunchWarm is of a sandbox that was taken from a pool.
	AgentLaunchWarm = "warm"
	// AgentLaunchCold is of a sandbox that was made for its claim.
	AgentLaunchCold = "cold"
	// AgentCreatedByController is of what a controller made.
	AgentCreatedByController = "controller"
	// AgentCreatedByGo and AgentCreatedByPython are of what agent-sandbox's own client
	// libraries made.
	AgentCreatedByGo     = "go-client"
	AgentCreatedByPython = "python-client"
)

// Annotations of agent-sandbox.
const (
	// AgentAnnotationSandboxName is the name of the sandbox of a claim, on the claim. In
	// older versions it was a label of the same key.
	AgentAnnotationSandboxName = AgentKeyPrefix + "sandbox-name"
	// AgentAnnotationPodName is the name of the pod of a sandbox, on the sandbox.
	AgentAnnotationPodName = AgentKeyPrefix + "pod-name"
	// AgentAnnotationTemplate is the name of the template that a sandbox is made from.
	AgentAnnotationTemplate = AgentKeyPrefix + "sandbox-template-ref"
)

// Annotations of agent-sandbox that say when a claim was seen and by whom. Times are in
// RFC 3339 with nanoseconds.
const (
	// AgentAnnotationClientRequested is when a client began to ask for the claim, by its
	// own clock. Clients write it; what it says is not believed beyond reason.
	AgentAnnotationClientRequested = AgentKeyPrefix + "client-first-requested-at"
	// AgentAnnotationWebhookObserved is when an admission webhook saw the claim first, for
	// who has one that says so. It is believed as little.
	AgentAnnotationWebhookObserved = AgentKeyPrefix + "webhook-first-observed-at"
	// AgentAnnotationFirstObserved is when this server saw the claim first. Only the server
	// writes it, in the transaction that creates the claim.
	AgentAnnotationFirstObserved = AgentKeyPrefix + "controller-first-observed-at"
	// AgentAnnotationFirstReady is when the claim was Ready first, or AgentTimeUnknown. Only
	// the server writes it, in the transaction that makes the claim Ready.
	AgentAnnotationFirstReady = AgentKeyPrefix + "claim-first-ready-at"
	// AgentAnnotationTraceContext is the W3C trace context of the create of a claim, on the
	// claim and its sandbox: a JSON object with traceparent and perhaps tracestate.
	AgentAnnotationTraceContext = "opentelemetry.io/trace-context"
)

// AgentTimeUnknown stands in AgentAnnotationFirstReady for a time that is not known.
const AgentTimeUnknown = "unknown"

// NameHash is how agent-sandbox writes a name into a label: FNV-1a of 32 bits, as 8 hex
// digits.
func NameHash(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // which never fails
	return fmt.Sprintf("%08x", h.Sum32())
}
