// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// labelPrefix begins the metadata that becomes labels.
const labelPrefix = "label:"

// Annotations of a sandbox, and keys of metadata in answers.
const (
	annotationReturnIP = v1alpha1.E2BKeyPrefix + "return-sandbox-ip"
	// MetadataResource is the key of metadata that names the Sandbox: namespace/name.
	MetadataResource = v1alpha1.E2BKeyPrefix + "sandbox-resource"
	// MetadataIP is the key of metadata that has the address of the sandbox, where
	// return-sandbox-ip asked for it.
	MetadataIP = v1alpha1.E2BKeyPrefix + "sandbox-ip"
)

func extension(name string) string { return v1alpha1.E2BKeyPrefix + name }

// extensions are what metadata under e2b.agents.kruise.io/ asks for: OpenKruise Agents'
// additions to the E2B API.
type extensions struct {
	// spec has the fields of a claim that extensions set as they are.
	spec            v1alpha1.SandboxClaimSpec
	createOnNoStock bool
	cpuRequest      string
	cpuLimit        string
	csi             v1alpha1.CSIMountConfig
	retention       string
	neverTimeout    bool
	returnIP        bool
}

// readExtensions takes the extensions out of metadata.
func readExtensions(metadata map[string]string) (*extensions, map[string]string, error) {
	e := &extensions{retention: v1alpha1.RetainPausedForever}
	rest := map[string]string{}
	for key, value := range metadata {
		name, ok := strings.CutPrefix(key, v1alpha1.E2BKeyPrefix)
		if !ok {
			rest[key] = value
			continue
		}
		if err := e.read(name, value); err != nil {
			return nil, nil, err
		}
	}
	return e, rest, nil
}

func (e *extensions) read(name, value string) error {
	var err error
	switch name {
	case "claim-timeout-seconds":
		e.spec.ClaimTimeout, err = parseSeconds(name, value, MaxWait)
	case "wait-ready-timeout-seconds":
		e.spec.WaitReadyTimeout, err = parseSeconds(name, value, MaxWait)
	case "csi-volume-config":
		err = e.mounts(name, value)
	case "skip-init-runtime":
		e.spec.SkipInitRuntime, err = boolean(name, value)
	case "return-sandbox-ip":
		e.returnIP, err = boolean(name, value)
	case "never-timeout":
		e.neverTimeout, err = boolean(name, value)
	case "create-on-no-stock":
		e.createOnNoStock, err = boolean(name, value)
	case "reserve-failed-sandbox", "reserve-failed-sandbox-for":
		switch value {
		case "never", "false":
		case "forever", "true":
			e.spec.ReserveFailedSandbox = true
		default:
			err = invalid("metadata %s: must be never or forever; to keep a failed sandbox for some time is not served", extension(name))
		}
	case "reserve-paused-sandbox-duration":
		e.retention = value
		err = CheckRetention(value)
	case "sandbox-name", "sandbox-generate-name":
		err = invalid("metadata %s: is for clones of checkpoints, which are not served", extension(name))
	default:
		if text := e.text(name); text != nil {
			*text = value
			return nil
		}
		err = invalid("metadata %s: is not known; keys under %s are the system's", extension(name), v1alpha1.E2BKeyPrefix)
	}
	return err
}

// text returns the field that the value of an extension is copied to; nil if there is none.
func (e *extensions) text(name string) *string {
	switch name {
	case "image":
		return &e.inplaceUpdate().Image
	case "cpu-request":
		return &e.cpuRequest
	case "cpu-limit":
		return &e.cpuLimit
	case "csi-volume-name":
		return &e.csi.PvName
	case "csi-mount-point":
		return &e.csi.MountPath
	case "csi-subpath":
		return &e.csi.SubPath
	}
	return nil
}

func (e *extensions) mounts(name, value string) error {
	var mounts []v1alpha1.CSIMountConfig
	if err := json.Unmarshal([]byte(value), &mounts); err != nil {
		return invalid("metadata %s: must be a JSON list of mounts: %v", extension(name), err)
	}
	e.spec.DynamicVolumesMount = append(e.spec.DynamicVolumesMount, mounts...)
	return nil
}

// CheckRetention checks how long a paused sandbox is to be kept: forever or a duration.
func CheckRetention(value string) error {
	kept, err := v1alpha1.PausedRetention(value)
	if err != nil {
		return invalid("%s: %v", extension("reserve-paused-sandbox-duration"), err)
	}
	if kept < time.Second { // empty, or nothing in whole seconds
		return invalid("%s: must be forever, or at least 1s", extension("reserve-paused-sandbox-duration"))
	}
	return nil
}

// inplaceUpdate returns the changes in place of the claim, and adds them if there are none.
func (e *extensions) inplaceUpdate() *v1alpha1.SandboxClaimInplaceUpdateOptions {
	if e.spec.InplaceUpdate == nil {
		e.spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{}
	}
	return e.spec.InplaceUpdate
}

// apply puts what was asked for into the spec of a claim.
func (e *extensions) apply(spec *v1alpha1.SandboxClaimSpec) error {
	if err := e.readCPU(); err != nil {
		return err
	}
	if e.csi.PvName != "" || e.csi.MountPath != "" || e.csi.SubPath != "" {
		if e.csi.PvName == "" || e.csi.MountPath == "" {
			return invalid("metadata %s and %s go together", extension("csi-volume-name"), extension("csi-mount-point"))
		}
		e.spec.DynamicVolumesMount = append(e.spec.DynamicVolumesMount, e.csi)
	}
	spec.ClaimTimeout, spec.WaitReadyTimeout = e.spec.ClaimTimeout, e.spec.WaitReadyTimeout
	// The end of the claim is that of its sandboxes that are not ready.
	if ready := spec.WaitReadyTimeout; spec.ClaimTimeout == nil && ready != nil && ready.Duration > v1alpha1.DefaultClaimTimeout {
		spec.ClaimTimeout = ready
	}
	spec.InplaceUpdate, spec.SkipInitRuntime = e.spec.InplaceUpdate, e.spec.SkipInitRuntime
	spec.ReserveFailedSandbox = e.spec.ReserveFailedSandbox
	spec.DynamicVolumesMount = append(spec.DynamicVolumesMount, e.spec.DynamicVolumesMount...)
	if spec.SkipInitRuntime && len(spec.EnvVars) > 0 {
		return invalid("envVars are set by the init of the runtime, which %s leaves out", extension("skip-init-runtime"))
	}
	// The create waits if the client says how long to wait, or accepts a new sandbox.
	if e.createOnNoStock || e.spec.ClaimTimeout != nil {
		spec.OnShortage, spec.CreateOnNoStock = v1alpha1.ShortageWait, new(e.createOnNoStock)
	}
	return nil
}

func (e *extensions) readCPU() error {
	for _, name := range []string{"cpu-request", "cpu-limit"} {
		text := *e.text(name)
		if text == "" {
			continue
		}
		var cpu resource.Quantity
		err := v1alpha1.CheckQuantity(text)
		if err == nil {
			cpu, err = resource.ParseQuantity(text)
		}
		if err != nil {
			return invalid("metadata %s: %q is no amount of CPU, such as 500m: %v", extension(name), text, err)
		}
		update := e.inplaceUpdate()
		if update.Resources == nil {
			update.Resources = &v1alpha1.SandboxClaimInplaceUpdateResources{}
		}
		list := corev1.ResourceList{corev1.ResourceCPU: cpu}
		if name == "cpu-request" {
			update.Resources.Requests = list
		} else {
			update.Resources.Limits = list
		}
	}
	return nil
}

func parseSeconds(name, value string, most int64) (*metav1.Duration, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 || n > most {
		return nil, invalid("metadata %s: must be a number of seconds from 1 to %d, not %q", extension(name), most, value)
	}
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}, nil
}

func boolean(name, value string) (bool, error) {
	switch value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, invalid("metadata %s: must be true or false, not %q", extension(name), value)
}

// splitMetadata parts what becomes labels from what becomes annotations.
func splitMetadata(metadata map[string]string) (labels, annotations map[string]string, err error) {
	labels, annotations = map[string]string{}, map[string]string{}
	for key, value := range metadata {
		into, name := annotations, key
		if label, ok := strings.CutPrefix(key, labelPrefix); ok {
			into, name = labels, label
		}
		if why := validation.IsQualifiedName(strings.ToLower(name)); len(why) > 0 {
			return nil, nil, invalid("metadata %q: the key must be one of an annotation: %s", key, why[0])
		}
		if strings.HasPrefix(name, v1alpha1.KeyPrefix) || strings.HasPrefix(name, v1alpha1.SandlotKeyPrefix) || strings.HasPrefix(name, v1alpha1.E2BKeyPrefix) {
			return nil, nil, invalid("metadata %q: keys under this prefix are the system's", key)
		}
		into[name] = value
	}
	return labels, annotations, nil
}
