// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ErrNoTemplate means that there is neither a pod template nor a reference to one.
var ErrNoTemplate = errors.New("no pod template")

// errNotAnObject is what a template of the wrong shape is refused with.
var errNotAnObject = errors.New("not a JSON object")

// decode reads a raw field into values of its own, numbers as the integers that
// they mostly are.
func decode(raw *runtime.RawExtension) (map[string]any, error) {
	if raw == nil {
		return nil, ErrNoTemplate
	}
	data, err := raw.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errNotAnObject
	}
	return object, nil
}

// podMetadata is the part of a pod template's metadata that a sandbox inherits.
type podMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func metadataOf(template *runtime.RawExtension) (podMetadata, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return podMetadata{}, err
	}
	var decoded struct {
		Metadata podMetadata `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return podMetadata{}, err
	}
	return decoded.Metadata, nil
}

// withoutInternal copies metadata without the keys that only the system writes:
// a template must not be able to make its sandboxes look locked or claimed. Two
// keys are meant to be set by users and stay.
func withoutInternal(in map[string]string) map[string]string {
	out := maps.Clone(in)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(key, _ string) bool {
		switch key {
		case v1alpha1.AnnotationCleanupEnabled, v1alpha1.AnnotationCleanupRetainOnFailure:
			return false
		}
		return isInternal(key)
	})
	return out
}

// isInternal reports whether a key is one of those that this API defines, in its words or
// in those of agent-sandbox.
func isInternal(key string) bool {
	return strings.HasPrefix(key, v1alpha1.KeyPrefix) || strings.HasPrefix(key, v1alpha1.SandlotKeyPrefix) || isAgentKey(key)
}

// isAgentKey reports whether a key is one of those that the API of agent-sandbox defines.
// Clients find pods and choose them by these, so no pod template has a say in them.
func isAgentKey(key string) bool {
	return strings.HasPrefix(key, v1alpha1.AgentKeyPrefix) || strings.HasPrefix(key, v1alpha1.ExtensionsGroup+"/")
}
