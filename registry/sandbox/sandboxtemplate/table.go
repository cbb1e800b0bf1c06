// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"encoding/json"
	"strings"

	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// row shortens the column constructors of this kind.
type row = *v1alpha1.SandboxTemplate

// maxImages bounds the cell of the images, in bytes.
const maxImages = 120

// NewTableConvertor prints templates. SET and REVISION are those of the templates in
// which controllers keep the revisions of sets; a user's own have neither.
func NewTableConvertor(c clock.PassiveClock) rest.TableConvertor {
	return base.NewTableConvertor(c,
		base.NameColumn[row](),
		base.StringColumn("Set", "The SandboxSet whose revision the template holds; none for a template of a user.",
			func(s row) string { set, _ := revisionIn(s); return base.OrNone(set) }),
		base.StringColumn("Revision", "The revision of the set that the template holds.",
			func(s row) string { _, revision := revisionIn(s); return base.OrNone(revision) }),
		base.StringColumn("Image", "The images of the containers, or what the template refers to instead.",
			func(s row) string { return base.OrNone(imagesOf(s)) }),
		base.AgeColumn[row](),
	)
}

// revisionIn returns the set and the revision of it that a template holds, if any.
func revisionIn(template *v1alpha1.SandboxTemplate) (set, revision string) {
	owner := setOf(template)
	if owner == nil {
		return "", ""
	}
	return owner.Name, template.Labels[v1alpha1.LabelTemplateHash]
}

// imagesOf returns the images of a template, or the name of the template that it refers to.
func imagesOf(template *v1alpha1.SandboxTemplate) string {
	if ref := template.Spec.TemplateRef; ref != nil && template.Spec.Template == nil {
		return "<" + ref.Name + ">"
	}
	if template.Spec.Template == nil {
		return ""
	}
	var pod struct {
		Spec struct {
			Containers []struct {
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if json.Unmarshal(template.Spec.Template.Raw, &pod) != nil {
		return "" // it is reported when it is used
	}
	var images []string
	for _, container := range pod.Spec.Containers {
		images = append(images, container.Image)
	}
	text := strings.Join(images, ",")
	if len(text) > maxImages {
		text = strings.ToValidUTF8(text[:maxImages], "") + "..."
	}
	return text
}
