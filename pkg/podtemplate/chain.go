// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Lookup finds what a reference names. What it returns is shared and not to be
// changed; nil, nil means that there is none.
type Lookup interface {
	// SandboxTemplate returns a SandboxTemplate.
	SandboxTemplate(ctx context.Context, namespace, name string) (*v1alpha1.SandboxTemplate, error)
	// PodTemplate returns a PodTemplate of the cluster. Where there is no cluster
	// there are none.
	PodTemplate(ctx context.Context, namespace, name string) (*corev1.PodTemplate, error)
}

var (
	// ErrTemplateNotFound means that a reference leads nowhere.
	ErrTemplateNotFound = errors.New("not found")
	// ErrTemplateCycle means that references lead back to where they began, or on
	// for too long.
	ErrTemplateCycle = errors.New("the references go round in a circle")
	// ErrTemplateKind means that a reference names a kind that is no template.
	ErrTemplateKind = errors.New("not a kind that can be referred to")
	// ErrPatch means that a patch is malformed, or does not fit the template.
	ErrPatch = errors.New("the patch cannot be applied")
	// ErrVolumes means that the SandboxTemplates of a chain of references have more volume claim
	// templates together than a sandbox may have.
	ErrVolumes = errors.New("too many volumeClaimTemplates")
	// ErrRevision means that a SandboxTemplate does not have the content of the revision
	// of a set that it is said to hold, or that a sandbox of a pool refers to another
	// template than that of its revision. Nothing is made from it.
	ErrRevision = errors.New("not the revision that the set has made")
)

// MaxChain is how many templates a chain of references may have.
const MaxChain = 8

// kindOf says what kind of template a reference names. An empty apiVersion is the
// kind's own.
func kindOf(ref *v1alpha1.SandboxTemplateRef) (string, error) {
	kind, version := ref.Kind, ""
	switch kind {
	case "", v1alpha1.TemplateKindSandboxTemplate:
		kind, version = v1alpha1.TemplateKindSandboxTemplate, v1alpha1.SchemeGroupVersion.String()
	case v1alpha1.TemplateKindPodTemplate:
		version = corev1.SchemeGroupVersion.String()
	}
	if version == "" || (ref.APIVersion != "" && ref.APIVersion != version) {
		return strings.TrimSpace(ref.APIVersion + " " + ref.Kind), fmt.Errorf(
			"%w: there are SandboxTemplate of %s and PodTemplate of v1", ErrTemplateKind, v1alpha1.SchemeGroupVersion)
	}
	return kind, nil
}

// link is one template of a chain.
type link struct{ kind, name string }

func (l link) String() string { return l.kind + " " + l.name }

// walk goes along references.
type walk struct {
	lookup    Lookup
	namespace string
	links     []link
	// What is taken from the SandboxTemplate that is named first, and from no other:
	// it is what the sandboxes are said to be of.
	service                   *bool
	maxFresh                  *int32
	networkManaged, publicDNS bool
	// volumes are the volume claim templates of all templates on the way so far.
	volumes []runtime.RawExtension
}

// begin takes in the template that is named first.
func (w *walk) begin(first *v1alpha1.SandboxTemplate) {
	w.service, w.maxFresh, w.networkManaged = first.Spec.Service, first.Spec.MaxFreshSandboxes, HasNetworkPolicy(first)
	w.publicDNS = w.networkManaged && first.Spec.NetworkPolicy == nil // nor anything else inside
}

// enter takes the next link of the chain.
func (w *walk) enter(kind, name string) {
	w.links = append(w.links, link{kind: kind, name: name})
}

// check returns an error if the chain may not have its last link.
func (w *walk) check() error {
	last := len(w.links) - 1
	switch {
	case slices.Contains(w.links[:last], w.links[last]):
		return ErrTemplateCycle
	case len(w.links) > MaxChain:
		return fmt.Errorf("%w, or there are more than %d of them", ErrTemplateCycle, MaxChain)
	}
	return nil
}

// blame puts the whole chain in front of an error.
func (w *walk) blame(err error) error {
	if len(w.links) == 0 {
		return err
	}
	chain := make([]string, 0, len(w.links))
	for _, l := range w.links {
		chain = append(chain, l.String())
	}
	return fmt.Errorf("%s: %w", strings.Join(chain, " -> "), err)
}

func (w *walk) names() []string {
	names := make([]string, 0, len(w.links))
	for _, l := range w.links {
		names = append(names, l.name)
	}
	return names
}

// follow goes from a template to the end of its references.
func (w *walk) follow(ctx context.Context, from *v1alpha1.SandboxTemplate) (end, error) {
	for at := from; ; {
		if at != from {
			w.volumes = withMoreVolumes(w.volumes, at.Spec.VolumeClaimTemplates)
		}
		if at.Spec.Template != nil {
			return end{
				kind: v1alpha1.TemplateKindSandboxTemplate, uid: at.UID, version: at.ResourceVersion,
				inline: at.Spec.Template, publicDNS: w.publicDNS,
			}, nil
		}
		ref := at.Spec.TemplateRef
		if ref == nil {
			return end{}, w.blame(ErrNoTemplate)
		}
		kind, err := kindOf(ref)
		w.enter(kind, ref.Name)
		if err == nil {
			err = w.check()
		}
		if err != nil {
			return end{}, w.blame(err)
		}
		if kind == v1alpha1.TemplateKindPodTemplate {
			return w.podTemplate(ctx, ref.Name)
		}
		switch at, err = w.lookup.SandboxTemplate(ctx, w.namespace, ref.Name); {
		case err != nil:
			return end{}, w.blame(err)
		case at == nil:
			return end{}, w.blame(ErrTemplateNotFound)
		}
		if len(w.links) == 1 {
			w.begin(at)
		}
	}
}

func (w *walk) podTemplate(ctx context.Context, name string) (end, error) {
	template, err := w.lookup.PodTemplate(ctx, w.namespace, name)
	switch {
	case err != nil:
		return end{}, w.blame(err)
	case template == nil:
		return end{}, w.blame(ErrTemplateNotFound)
	}
	return end{
		kind: v1alpha1.TemplateKindPodTemplate, uid: template.UID, version: template.ResourceVersion,
		typed: &template.Template, publicDNS: w.publicDNS,
	}, nil
}

// end is what stands at the end of a chain, and which state of it.
type end struct {
	kind    string
	uid     types.UID
	version string
	inline  *runtime.RawExtension
	typed   *corev1.PodTemplateSpec
	// publicDNS says that its pods cannot ask the name servers of the cluster.
	publicDNS bool
}

// finish makes the pod template, with a patch if there is one. Whom the pods ask for
// names is filled in last, so that the patch has its say.
func (e end) finish(ctx context.Context, patch *runtime.RawExtension) (*runtime.RawExtension, error) {
	if err := ctx.Err(); err != nil { // a patch takes time that is worth nothing any more
		return nil, err
	}
	template := e.inline
	if template == nil {
		typed := e.typed
		if e.publicDNS {
			typed = withoutDefaultDNS(typed)
		}
		raw, err := json.Marshal(typed)
		if err != nil {
			return nil, fmt.Errorf("encoding: %w", err)
		}
		template = &runtime.RawExtension{Raw: raw}
	}
	if patch != nil {
		var err error
		if template, err = ApplyPatch(template, patch); err != nil {
			return nil, err
		}
	}
	if !e.publicDNS {
		return template, nil
	}
	return withPublicDNS(template)
}
