// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// getOptions reads what is there now, not what a cache believes.
var getOptions = metav1.GetOptions{}

// maxTemplates is how many templates a list has.
const maxTemplates = 1000

// listTemplates lists the SandboxSets of the team.
func (c *call) listTemplates() error {
	list, err := c.agents.SandboxSets(c.caller.Team).List(c.r.Context(), metav1.ListOptions{Limit: maxTemplates})
	if err != nil {
		return err
	}
	templates := []mapping.Template{}
	for i := range list.Items {
		templates = append(templates, mapping.TemplateOf(&list.Items[i], c.api.EnvdVersion))
	}
	writeJSON(c.w, http.StatusOK, templates)
	return nil
}

func (c *call) getTemplate() error {
	id := c.r.PathValue("id")
	missing := &Error{Code: http.StatusNotFound, Message: "there is no template " + quoted(id)}
	if len(validation.IsDNS1123Subdomain(id)) > 0 {
		return missing
	}
	set, err := c.agents.SandboxSets(c.caller.Team).Get(c.r.Context(), id, getOptions)
	if apierrors.IsNotFound(err) {
		return missing
	}
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, mapping.TemplateOf(set, c.api.EnvdVersion))
	return nil
}

// deleteTemplate refuses: a SandboxSet is its platform team's.
func (c *call) deleteTemplate() error {
	return &Error{Code: http.StatusForbidden, Message: "templates are SandboxSets, and are deleted by those who may delete these"}
}
