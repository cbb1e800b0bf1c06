// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Timeouts in seconds.
const (
	// DefaultTimeout is that of a request that names none.
	DefaultTimeout = 300
	// MinTimeout is the shortest with which a sandbox is made.
	MinTimeout = 1
	// DefaultMaxTimeout is the longest, where the gateway has no other limit.
	DefaultMaxTimeout = 30 * 24 * 3600
	// MaxWait is how long a create may wait at most.
	MaxWait = 15 * 60
)

// CreateRequest is the body of a create. Fields that newer SDKs leave out have the defaults of the
// server: a timeout of 300 seconds, and access to the internet.
type CreateRequest struct {
	TemplateID          string            `json:"templateID"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"`
	Timeout             *int64            `json:"timeout,omitempty"`
	AutoPause           bool              `json:"autoPause,omitempty"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory,omitempty"`
	AutoResume          *AutoResume       `json:"autoResume,omitempty"`
	Secure              *bool             `json:"secure,omitempty"`
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Network             *Network          `json:"network,omitempty"`
	VolumeMounts        []VolumeMount     `json:"volumeMounts,omitempty"`
	MCP                 json.RawMessage   `json:"mcp,omitempty"`
	IAM                 json.RawMessage   `json:"iam,omitempty"`
}

// AutoResume says whether traffic resumes a paused sandbox.
type AutoResume struct {
	Enabled bool `json:"enabled"`
}

// Network is what may reach a sandbox, and what it may reach. Only allowPublicTraffic is
// served.
type Network struct {
	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	AllowOut           []string        `json:"allowOut,omitempty"`
	DenyOut            []string        `json:"denyOut,omitempty"`
	MaskRequestHost    string          `json:"maskRequestHost,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
}

// VolumeMount is a PersistentVolume and where it is mounted.
type VolumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// CreatePlan is what a CreateRequest asks for.
type CreatePlan struct {
	// Claim is the claim to create. The caller sets its name and namespace.
	Claim *v1alpha1.SandboxClaim
	// Timeout is how long the sandbox lives, or runs until it is paused; 0 is no limit.
	Timeout time.Duration
	// MayWait reports whether the create may wait for long: for a sandbox, or for changes of one in place.
	MayWait bool
	// MayOutlastTimeout reports whether the create may take as long as the timeout, because it
	// waits for a sandbox or the timeout is short. It is false if there is no timeout.
	MayOutlastTimeout bool
}

// Limits bound what requests ask for.
type Limits struct {
	// MaxTimeout is the longest timeout in seconds.
	MaxTimeout int64
}

// NewCreatePlan validates a create and returns the plan for it. The timeout starts at now. keyID is the id
// of the API key. Errors are *InvalidError and *UnservedError.
func NewCreatePlan(body *CreateRequest, keyID string, limits Limits, now time.Time) (*CreatePlan, error) {
	if err := validate(body); err != nil {
		return nil, err
	}
	ext, metadata, err := readExtensions(body.Metadata)
	if err != nil {
		return nil, err
	}
	claim := &v1alpha1.SandboxClaim{}
	spec := &claim.Spec
	spec.TemplateName = body.TemplateID
	spec.Replicas = new(int32(1))
	spec.OnShortage, spec.CreateOnNoStock = v1alpha1.ShortageFail, new(false)
	spec.ReclaimPolicy = v1alpha1.ReclaimRetain
	spec.Lifecycle = &v1alpha1.SandboxClaimLifecycle{
		TTLSecondsAfterFinished: new(ClaimKept), ShutdownPolicy: v1alpha1.ShutdownDelete,
	}
	spec.EnvVars = maps.Clone(body.EnvVars)
	if spec.Labels, spec.Annotations, err = splitMetadata(metadata); err != nil {
		return nil, err
	}
	for _, mount := range body.VolumeMounts {
		if mount.Name == "" || mount.Path == "" {
			return nil, invalid("volumeMounts: name, that of a PersistentVolume, and path are required")
		}
		spec.DynamicVolumesMount = append(spec.DynamicVolumesMount, v1alpha1.CSIMountConfig{PvName: mount.Name, MountPath: mount.Path})
	}
	if err := ext.apply(spec); err != nil {
		return nil, err
	}
	if isPrivate(body) && spec.SkipInitRuntime {
		return nil, invalid("network.allowPublicTraffic false needs an access token, which there is none of with %s", extension("skip-init-runtime"))
	}
	plan := &CreatePlan{Claim: claim, MayWait: spec.OnShortage == v1alpha1.ShortageWait || spec.InplaceUpdate != nil}
	if !ext.neverTimeout {
		if plan.Timeout, err = limits.Timeout(body.Timeout, MinTimeout); err != nil {
			return nil, err
		}
	}
	claimTimeout := ptr.Deref(spec.ClaimTimeout, metav1.Duration{Duration: v1alpha1.DefaultClaimTimeout}).Duration
	plan.MayOutlastTimeout = plan.Timeout > 0 && (spec.OnShortage == v1alpha1.ShortageWait || plan.Timeout <= claimTimeout)
	spec.Labels[v1alpha1.LabelAllowInternetAccess] = strconv.FormatBool(ptr.Deref(body.AllowInternetAccess, true))
	maps.Copy(spec.Annotations, annotationsOf(body, ext, keyID, plan.Timeout))
	plan.SetTimeoutStart(now)
	return plan, nil
}

// ClaimKept is how many seconds a claim stays after its sandbox is gone. For so long the
// Idempotency-Key of its create is known.
const ClaimKept int32 = 30

// annotationsOf returns the annotations in which a sandbox keeps what the gateway needs to know of its
// create.
func annotationsOf(body *CreateRequest, ext *extensions, keyID string, timeout time.Duration) map[string]string {
	annotations := map[string]string{
		v1alpha1.AnnotationE2BTemplateID:                body.TemplateID,
		v1alpha1.AnnotationE2BKeyID:                     keyID,
		v1alpha1.AnnotationReservePausedSandboxDuration: ext.retention,
	}
	if ext.returnIP {
		annotations[annotationReturnIP] = "true"
	}
	if timeout > 0 {
		annotations[v1alpha1.AnnotationE2BTimeout] = strconv.FormatInt(int64(timeout/time.Second), 10)
	}
	if body.AutoPause {
		annotations[v1alpha1.AnnotationE2BAutoPause] = "true"
	}
	if r := body.AutoResume; r != nil && r.Enabled {
		annotations[v1alpha1.AnnotationE2BAutoResume] = "true"
	}
	if isPrivate(body) {
		annotations[v1alpha1.AnnotationE2BPrivate] = "true"
	}
	return annotations
}

// isPrivate reports whether the ports of the sandbox need a traffic access token.
func isPrivate(body *CreateRequest) bool {
	return body.Network != nil && !ptr.Deref(body.Network.AllowPublicTraffic, true)
}

// HasChangedTimeout reports whether the timeout of a sandbox differs from the one in its claim.
func HasChangedTimeout(sb *v1alpha1.Sandbox, claim *v1alpha1.SandboxClaim) bool {
	if claim.Spec.PauseTime != nil {
		return !claim.Spec.PauseTime.Equal(sb.Spec.PauseTime)
	}
	return !claim.Spec.ShutdownTime.Equal(sb.Spec.ShutdownTime)
}

// SetTimeoutStart sets the end of the timeout in the claim, for a timeout that starts at start.
func (p *CreatePlan) SetTimeoutStart(start time.Time) {
	spec := &p.Claim.Spec
	spec.ShutdownTime, spec.PauseTime = nil, nil
	if p.Timeout <= 0 {
		return
	}
	spec.PauseTime, spec.ShutdownTime = pauseAndShutdownTimes(spec.Annotations, start.Add(p.Timeout))
}

// Timeout returns the timeout that a request asks for in seconds, or else DefaultTimeout. It returns an
// *InvalidError if that is less than least, or too long.
func (l Limits) Timeout(seconds *int64, least int64) (time.Duration, error) {
	n := ptr.Deref(seconds, DefaultTimeout)
	if n < least || n > l.MaxTimeout {
		return 0, invalid("timeout %d: must be from %d to %d seconds", n, least, l.MaxTimeout)
	}
	return time.Duration(n) * time.Second, nil
}

// validate returns an error for fields that are missing, contradict each other, or would have no effect.
func validate(body *CreateRequest) error {
	switch n := body.Network; {
	case body.TemplateID == "":
		return invalid("templateID is required: the name of a SandboxSet or SandboxTemplate of the team's namespace")
	case isSet(body.MCP):
		return &UnservedError{What: "mcp"}
	case isSet(body.IAM):
		return &UnservedError{What: "iam"}
	case n != nil && (len(n.AllowOut) > 0 || len(n.DenyOut) > 0 || isSet(n.Rules)):
		return &UnservedError{What: "network with allowOut, denyOut or rules"}
	case n != nil && n.MaskRequestHost != "":
		return &UnservedError{What: "network.maskRequestHost"}
	case body.AutoResume != nil && body.AutoResume.Enabled && !body.AutoPause:
		return invalid("autoResume needs autoPause: a sandbox that is deleted at its timeout is not resumed")
	}
	return nil
}

// isSet reports whether JSON says something: neither null nor an empty object or list.
func isSet(raw json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(raw)), "") {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}
