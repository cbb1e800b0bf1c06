// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Values of labels of agent-sandbox's metrics. No object can have such a name.
const (
	// UnknownTemplate stands for the template of a sandbox that is of none.
	UnknownTemplate = "__unknown__"
	// OtherFigures stands for the templates, pools and namespaces that have no figures of
	// their own, because there are too many.
	OtherFigures = "__other__"
	// UnknownFigure stands for how a sandbox came to be claimed, or for the client of a
	// claim, where that is not known.
	UnknownFigure = "unknown"
)

var createdBy = []string{
	v1alpha1.AgentCreatedByGo, v1alpha1.AgentCreatedByPython, v1alpha1.AgentCreatedByController, UnknownFigure,
}

// CreatedByValues are all that CreatedBy returns.
func CreatedByValues() []string { return createdBy }

// CreatedBy returns which client made an object, as its label says: one of the values that
// are known, for the label is its user's to write.
func CreatedBy(object metav1.Object) string {
	if by := object.GetLabels()[v1alpha1.AgentLabelCreatedBy]; slices.Contains(createdBy, by) {
		return by
	}
	return UnknownFigure
}

// LaunchType returns whether a sandbox that was claimed came from a pool,
// v1alpha1.AgentLaunchWarm, or was made for its claim, v1alpha1.AgentLaunchCold. It is
// UnknownFigure for one that is not claimed.
func LaunchType(sb *v1alpha1.Sandbox) string {
	switch {
	case sb.Annotations[v1alpha1.AnnotationOwner] == "":
		return UnknownFigure
	case sb.Labels[v1alpha1.LabelTemplateHash] != "":
		return v1alpha1.AgentLaunchWarm
	}
	return v1alpha1.AgentLaunchCold
}

// TemplateInFigures returns the name of the template of a sandbox that a set or a claim had
// made. For a set with a template of its own, it is the set's.
func TemplateInFigures(sb *v1alpha1.Sandbox) string {
	label := sb.Labels[v1alpha1.LabelSandboxTemplate]
	if name := sb.Annotations[v1alpha1.AgentAnnotationTemplate]; name != "" && v1alpha1.TemplateLabel(name) == label {
		return name // of which the label may have but the beginning
	}
	if label == "" {
		return UnknownTemplate
	}
	return label
}
