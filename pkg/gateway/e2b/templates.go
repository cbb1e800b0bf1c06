// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// listTemplates lists the SandboxSets of the team.
func listTemplates(c *call) error {
	release, err := c.cluster.takeListSlot()
	if err != nil {
		return err
	}
	defer release()
	templates := []mapping.Template{}
	options := metav1.ListOptions{Limit: smallPage}
	for {
		var sets v1alpha1.SandboxSetList
		err := c.cluster.list(c.r.Context(), "sandboxsets", options, &sets, func() {
			for i := range sets.Items {
				templates = append(templates, mapping.TemplateOf(&sets.Items[i], c.api.options.EnvdVersion))
			}
		})
		switch {
		case apierrors.IsResourceExpired(err):
			return &Error{Code: http.StatusServiceUnavailable, Message: "the templates changed while they were read", RetryAfter: time.Second}
		case err != nil:
			return err
		case sets.Continue == "":
			writeJSON(c.w, http.StatusOK, templates)
			return nil
		}
		options.Continue = sets.Continue
	}
}

func getTemplate(c *call) error {
	id := c.r.PathValue("id")
	missing := &Error{Code: http.StatusNotFound, Message: "there is no template " + quoted(id)}
	if len(validation.IsDNS1123Subdomain(id)) > 0 {
		return missing
	}
	var set v1alpha1.SandboxSet
	var template mapping.Template
	err := c.cluster.getByName(c.r.Context(), "sandboxsets", id, &set, func() { template = mapping.TemplateOf(&set, c.api.options.EnvdVersion) })
	if apierrors.IsNotFound(err) {
		return missing
	}
	if err != nil {
		return err
	}
	writeJSON(c.w, http.StatusOK, template)
	return nil
}

// getAlias answers whether there is a template of a name, which is a SandboxSet or a
// SandboxTemplate.
func getAlias(c *call) error {
	alias := c.r.PathValue("alias")
	missing := &Error{Code: http.StatusNotFound, Message: "there is no template " + quoted(alias)}
	if len(validation.IsDNS1123Subdomain(alias)) > 0 {
		return missing
	}
	err := c.cluster.getByName(c.r.Context(), "sandboxsets", alias, &v1alpha1.SandboxSet{}, func() {})
	if apierrors.IsNotFound(err) {
		err = c.cluster.getByName(c.r.Context(), "sandboxtemplates", alias, &v1alpha1.SandboxTemplate{}, func() {})
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
func deleteTemplate(c *call) error {
	return &Error{Code: http.StatusForbidden, Message: "templates are SandboxSets, and are deleted by those who may delete these"}
}
