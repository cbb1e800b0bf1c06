// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/pager"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// getOptions reads what is there now, not what a cache believes.
var getOptions = metav1.GetOptions{}

// templatesPage is how many templates are read at a time.
const templatesPage = 200

// listTemplates lists the SandboxSets of the team.
func (c *call) listTemplates() error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.agents.SandboxSets(c.caller.Team).List(ctx, options)
	})
	pages.PageSize, pages.PageBufferSize = templatesPage, 0
	templates := []mapping.Template{}
	err := pages.EachListItem(c.r.Context(), metav1.ListOptions{}, func(set runtime.Object) error {
		templates = append(templates, mapping.TemplateOf(set.(*v1alpha1.SandboxSet), c.api.EnvdVersion))
		return nil
	})
	if err != nil {
		return err
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

// getAlias answers whether there is a template of a name, which is a SandboxSet or a
// SandboxTemplate.
func (c *call) getAlias() error {
	alias := c.r.PathValue("alias")
	missing := &Error{Code: http.StatusNotFound, Message: "there is no template " + quoted(alias)}
	if len(validation.IsDNS1123Subdomain(alias)) > 0 {
		return missing
	}
	_, err := c.agents.SandboxSets(c.caller.Team).Get(c.r.Context(), alias, getOptions)
	if apierrors.IsNotFound(err) {
		_, err = c.agents.SandboxTemplates(c.caller.Team).Get(c.r.Context(), alias, getOptions)
	}
	if apierrors.IsNotFound(err) {
		return missing
	}
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, mapping.Alias{TemplateID: alias, Public: true})
	return nil
}

// deleteTemplate refuses: a SandboxSet is its platform team's.
func (c *call) deleteTemplate() error {
	return &Error{Code: http.StatusForbidden, Message: "templates are SandboxSets, and are deleted by those who may delete these"}
}
