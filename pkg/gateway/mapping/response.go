// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// SandboxResponse is the response to create, connect and resume.
type SandboxResponse struct {
	TemplateID         string  `json:"templateID"`
	SandboxID          string  `json:"sandboxID"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken,omitempty"`
	Domain             string  `json:"domain,omitempty"`
	Alias              string  `json:"alias,omitempty"`
}

// Info is a sandbox in a list, and the response to a get.
type Info struct {
	TemplateID          string            `json:"templateID"`
	Alias               string            `json:"alias,omitempty"`
	SandboxID           string            `json:"sandboxID"`
	ClientID            string            `json:"clientID"`
	StartedAt           string            `json:"startedAt"`
	EndAt               string            `json:"endAt"`
	EnvdVersion         string            `json:"envdVersion"`
	EnvdAccessToken     string            `json:"envdAccessToken,omitempty"`
	Domain              string            `json:"domain,omitempty"`
	CPUCount            int64             `json:"cpuCount"`
	MemoryMB            int64             `json:"memoryMB"`
	DiskSizeMB          int64             `json:"diskSizeMB"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	State               E2BState          `json:"state"`
	AllowInternetAccess *bool             `json:"allowInternetAccess,omitempty"`
	Lifecycle           *Lifecycle        `json:"lifecycle,omitempty"`
}

// Lifecycle says what happens at the end of the timeout.
type Lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// endless is the life of a sandbox without an end. Clients need a date.
const endless = 100 * 365 * 24 * time.Hour

// InfoOf describes a sandbox. envdVersion and domain are those of the gateway.
func InfoOf(sb *v1alpha1.Sandbox, envdVersion, domain string, now time.Time) Info {
	started := startOf(sb)
	end := started.Add(endless)
	switch {
	case sb.Spec.PauseTime != nil:
		end = sb.Spec.PauseTime.Time
	case sb.Spec.ShutdownTime != nil:
		end = sb.Spec.ShutdownTime.Time
	}
	id, _ := v1alpha1.IsE2B(sb)
	info := Info{
		TemplateID: TemplateID(sb), SandboxID: id,
		StartedAt: rfc3339(started), EndAt: rfc3339(end),
		EnvdVersion: envdVersion, Domain: domain,
		Metadata: metadataOf(sb), State: StateOf(sb, now),
		Lifecycle: &Lifecycle{OnTimeout: "kill", AutoResume: sb.Annotations[v1alpha1.AnnotationE2BAutoResume] == "true"},
	}
	if sb.Annotations[v1alpha1.AnnotationE2BAutoPause] == "true" {
		info.Lifecycle.OnTimeout = "pause"
	}
	if allowed, ok := sb.Labels[v1alpha1.LabelAllowInternetAccess]; ok {
		is := allowed == "true"
		info.AllowInternetAccess = &is
	}
	info.CPUCount, info.MemoryMB, info.DiskSizeMB = resourcesOf(sb)
	return info
}

// TemplateID returns the templateID of the create of a sandbox.
func TemplateID(sb *v1alpha1.Sandbox) string {
	if id := sb.Annotations[v1alpha1.AnnotationE2BTemplateID]; id != "" {
		return id
	}
	return sb.Labels[v1alpha1.LabelSandboxTemplate]
}

func rfc3339(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }

func startOf(sb *v1alpha1.Sandbox) time.Time {
	if t, err := time.Parse(time.RFC3339, sb.Annotations[v1alpha1.AnnotationClaimTimestamp]); err == nil {
		return t
	}
	return sb.CreationTimestamp.Time
}

// metadataOf returns the labels and annotations that the claim has set on the sandbox, and the name of the
// sandbox in the cluster.
func metadataOf(sb *v1alpha1.Sandbox) map[string]string {
	var put struct{ Labels, Annotations []string }
	// Ignore what cannot be parsed: other clients wrote it.
	_ = json.Unmarshal([]byte(sb.Annotations[v1alpha1.AnnotationUpdatedMetadataInClaim]), &put)
	metadata := map[string]string{MetadataResource: sb.Namespace + "/" + sb.Name}
	take := func(prefix string, keys []string, from map[string]string) {
		for _, key := range keys {
			value, ok := from[key]
			if ok && !strings.HasPrefix(key, v1alpha1.KeyPrefix) && !strings.HasPrefix(key, v1alpha1.E2BKeyPrefix) && !strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix) {
				metadata[prefix+key] = value
			}
		}
	}
	take("", put.Annotations, sb.Annotations)
	take(labelPrefix, put.Labels, sb.Labels)
	if sb.Annotations[annotationReturnIP] == "true" && sb.Status.PodInfo.PodIP != "" {
		metadata[MetadataIP] = sb.Status.PodInfo.PodIP
	}
	return metadata
}

// resourcesOf returns the sums of the resources of the containers: limits, else requests. They are
// rounded up to whole CPUs and MiB.
func resourcesOf(sb *v1alpha1.Sandbox) (cpu, memory, disk int64) {
	if sb.Spec.Template == nil {
		return 0, 0, 0
	}
	var template struct {
		Spec struct {
			Containers []struct {
				Resources corev1.ResourceRequirements `json:"resources"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if json.Unmarshal(sb.Spec.Template.Raw, &template) != nil {
		return 0, 0, 0
	}
	var milliCPU, memoryBytes, diskBytes int64
	for i := range template.Spec.Containers {
		have := template.Spec.Containers[i].Resources.Requests.DeepCopy()
		if have == nil {
			have = corev1.ResourceList{}
		}
		maps.Copy(have, template.Spec.Containers[i].Resources.Limits)
		milliCPU += have.Cpu().MilliValue()
		memoryBytes += have.Memory().Value()
		diskBytes += have.StorageEphemeral().Value()
	}
	const mib = 1 << 20
	return ceilDiv(milliCPU, 1000), ceilDiv(memoryBytes, mib), ceilDiv(diskBytes, mib)
}

// ceilDiv returns n/unit, rounded up. It returns 0 for a negative n.
func ceilDiv(n, unit int64) int64 {
	if n <= 0 {
		return 0
	}
	return (n-1)/unit + 1
}

// Template is a SandboxSet in the words of the E2B API.
type Template struct {
	TemplateID  string   `json:"templateID"`
	BuildID     string   `json:"buildID"`
	CPUCount    int64    `json:"cpuCount"`
	MemoryMB    int64    `json:"memoryMB"`
	DiskSizeMB  int64    `json:"diskSizeMB"`
	Public      bool     `json:"public"`
	Aliases     []string `json:"aliases"`
	Names       []string `json:"names"`
	CreatedAt   string   `json:"createdAt"`
	UpdatedAt   string   `json:"updatedAt"`
	SpawnCount  int64    `json:"spawnCount"`
	BuildCount  int64    `json:"buildCount"`
	BuildStatus string   `json:"buildStatus"`
	EnvdVersion string   `json:"envdVersion"`
}

// Alias is the response to a request for a template by its alias, which is its name.
type Alias struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

// TemplateOf describes a SandboxSet.
func TemplateOf(set *v1alpha1.SandboxSet, envdVersion string) Template {
	made := rfc3339(set.CreationTimestamp.Time)
	one := &v1alpha1.Sandbox{}
	one.Spec.Template = set.Spec.Template
	t := Template{
		TemplateID: set.Name, BuildID: string(set.UID), Public: true, Aliases: []string{}, Names: []string{set.Name},
		CreatedAt: made, UpdatedAt: made, BuildCount: 1, BuildStatus: "ready", EnvdVersion: envdVersion,
	}
	t.CPUCount, t.MemoryMB, t.DiskSizeMB = resourcesOf(one)
	return t
}

// sortedStates returns states sorted and without duplicates.
func sortedStates(states []E2BState) []E2BState {
	slices.Sort(states)
	return slices.Compact(states)
}
