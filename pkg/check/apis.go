// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
)

// automanaged is the label of the APIServices that kube-apiserver makes for CRDs.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// apiService is what is looked at of an APIService.
type apiService struct {
	apiServiceObject
	// answer is why a request for the API fails that is made as the caller; nil if it does not.
	answer error
}

// apiServiceObject is what is read of the object, so all of its fields are exported.
type apiServiceObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Service *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
		CABundle              []byte `json:"caBundle"`
		InsecureSkipTLSVerify bool   `json:"insecureSkipTLSVerify"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (a *apiService) String() string { return "APIService " + a.Name }

// lookAtAPIs looks at the APIServices of the groups, and finds the install by them: it is
// where that of the stored version leads to. Those of the other groups are looked at where
// they lead to the same Service.
func lookAtAPIs(ctx context.Context, c *cluster) ([]findings.Finding, error) {
	list, err := c.dynamic.Resource(apiServices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing APIServices, to find the install: %w", err)
	}
	found := map[string]*apiService{}
	for _, item := range list.Items {
		service, err := readAPIService(item.Object)
		if err != nil {
			return nil, fmt.Errorf("APIService %s: %w", item.GetName(), err)
		}
		found[service.Name] = service
	}
	main := found[nameOf(v1alpha1.SchemeGroupVersion)]
	if main == nil || main.Spec.Service == nil {
		return judgeAPIs(nil, main, c.now), nil
	}
	c.namespace, c.service = main.Spec.Service.Namespace, main.Spec.Service.Name
	var served []*apiService
	for _, version := range v1alpha1.ServedVersions {
		service := found[nameOf(version)]
		if service == nil || service.Spec.Service == nil || *service.Spec.Service != *main.Spec.Service {
			continue
		}
		service.answer = c.kube.Discovery().RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Error()
		served = append(served, service)
	}
	return judgeAPIs(served, main, c.now), nil
}

func readAPIService(object map[string]any) (*apiService, error) {
	service := &apiService{}
	return service, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &service.apiServiceObject)
}

func nameOf(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// judgeAPIs judges the APIServices that lead to the install. main is that of the stored
// version, nil if there is none.
func judgeAPIs(served []*apiService, main *apiService, now time.Time) (found []findings.Finding) {
	add := func(level findings.Level, object, message, action string) {
		f := problem(level, object, message, action)
		f.Check = "APIServices"
		found = append(found, f)
	}
	name := "APIService " + nameOf(v1alpha1.SchemeGroupVersion)
	switch {
	case main == nil:
		add(findings.Error, name, name+" is not there: Sandlot is not installed in this cluster", "install it: docs/install.md")
		return found
	case main.Spec.Service == nil:
		message := name + " leads to no Service, so kube-apiserver serves the group itself"
		if main.Labels[automanaged] != "" {
			message += ", from CustomResourceDefinitions"
		}
		add(findings.Error, name, message, "move from OpenKruise Agents, and install again: docs/operations.md")
		return found
	}
	for _, service := range served {
		of := len(found)
		if available := meta.FindStatusCondition(service.Status.Conditions, "Available"); available == nil || available.Status != metav1.ConditionTrue {
			why := "kube-apiserver has not said why"
			if available != nil {
				why = available.Reason + ": " + available.Message
			}
			add(findings.Error, service.String(), fmt.Sprintf("%s is not Available: %s", service, why),
				"check that sandlot-apiserver is ready and that kube-apiserver reaches it")
		}
		if service.Spec.InsecureSkipTLSVerify {
			add(findings.Error, service.String(), service.String()+" has insecureSkipTLSVerify, so anyone on the way can answer instead of sandlot-apiserver",
				"take the field away, and let sandlot-controller-manager set caBundle")
		} else if why := judgeBundle(service.Spec.CABundle, now); why != "" {
			add(findings.Error, service.String(), fmt.Sprintf("%s has a caBundle that %s", service, why),
				"see that sandlot-controller-manager runs and may patch APIServices: it sets caBundle. docs/certificates.md")
		}
		if service.answer != nil {
			add(findings.Error, service.String(), fmt.Sprintf("a request by way of %s fails: %v", service, service.answer),
				"if the message is of a certificate, docs/certificates.md; else see the logs of sandlot-apiserver")
		}
		if len(found) == of {
			add(findings.OK, service.String(), fmt.Sprintf("%s is Available and answers, by Service %s/%s", service, service.Spec.Service.Namespace, service.Spec.Service.Name), "")
		}
	}
	return found
}

// judgeBundle is what is wrong with the CAs of a caBundle; empty if nothing is.
func judgeBundle(bundle []byte, now time.Time) string {
	if len(bundle) == 0 {
		return "is empty"
	}
	all, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return "cannot be read: " + err.Error()
	}
	for _, ca := range all {
		if now.Before(ca.NotAfter) {
			return ""
		}
	}
	return "has expired"
}
