// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/apiserver/quota"
	"github.com/sandlot-io/sandlot/pkg/tokens"
)

// policyPlugins are the admission plugins that came to Kubernetes late, with
// the resource of admissionregistration.k8s.io/v1 that each cannot do without.
var policyPlugins = map[string]string{
	mutatingpolicy.PluginName:   "mutatingadmissionpolicies",
	validatingpolicy.PluginName: "validatingadmissionpolicies",
}

// applyCluster configures a server that belongs to a cluster: it asks the
// cluster who a user is and what they may do, and applies the cluster's
// admission webhooks and policies, quotas, priority and fairness.
func (o *Options) applyCluster(cfg *genericapiserver.RecommendedConfig) error {
	if err := o.Authentication.ApplyTo(&cfg.Authentication, cfg.SecureServing, cfg.OpenAPIConfig); err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	guard, chain := tokens.NewGuard(o.Authentication.CacheTTL, clock.RealClock{}), cfg.BuildHandlerChainFunc
	cfg.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return guard.Handler(chain(handler, c))
	}
	authentication := cfg.Authentication.Authenticator
	if proxy := cfg.Authentication.RequestHeaderConfig; proxy != nil {
		authentication = rememberFrontProxy(authentication, proxy)
		cfg.AddReadyzChecks(frontProxyCheck(proxy.CAContentProvider))
	}
	cfg.Authentication.Authenticator = onlyHealthForAnyone{guard.Authenticator(authentication)}
	rights, err := newAuthorizer(o.Authorization)
	if err != nil {
		return fmt.Errorf("authorization: %w", err)
	}
	cfg.Authorization.Authorizer = namelessFirst{rights}
	if err := o.CoreAPI.ApplyTo(cfg); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	// Quotas are charged through this client, once for each batch of claims of a
	// namespace: 5 requests a second, as is the default, would throttle claims. The limit
	// is one for all clients that are made from this.
	cfg.ClientConfig = rest.CopyConfig(cfg.ClientConfig)
	cfg.ClientConfig.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.KubeAPIQPS, o.KubeAPIBurst)
	client, err := kubernetes.NewForConfig(cfg.ClientConfig)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(cfg.ClientConfig)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	if err := o.Features.ApplyTo(&cfg.Config, client, cfg.SharedInformerFactory); err != nil {
		return fmt.Errorf("features: %w", err)
	}
	admission, err := withoutUnknownPolicies(*o.Admission, client.Discovery())
	if err != nil {
		return err
	}
	err = admission.ApplyTo(&cfg.Config, cfg.SharedInformerFactory, client, dynamicClient, cfg.FeatureGate, cfg.EffectiveVersion,
		quota.Initializer())
	if err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	return nil
}

// frontProxyCheck fails until the CA of the front proxy is there, which is read
// in the background: until then, clients that come through the aggregator
// are unauthorized.
func frontProxyCheck(ca dynamiccertificates.CAContentProvider) healthz.HealthChecker {
	return healthz.NamedCheck("front-proxy-ca", func(*http.Request) error {
		if len(ca.CurrentCABundleContent()) == 0 {
			return errors.New("requestheader-client-ca-file has not been found in configmap extension-apiserver-authentication in kube-system")
		}
		return nil
	})
}

// withoutUnknownPolicies turns off the policy plugins whose objects the cluster
// does not know. They would otherwise wait for them, and every write with them.
func withoutUnknownPolicies(o genericoptions.AdmissionOptions, client discovery.DiscoveryInterface) (*genericoptions.AdmissionOptions, error) {
	gv := admissionregistrationv1.SchemeGroupVersion.String()
	served, err := client.ServerResourcesForGroupVersion(gv)
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for the resources of %s: %w", gv, err)
	}
	o.DisablePlugins = slices.Clone(o.DisablePlugins)
	for plugin, resource := range policyPlugins {
		known := slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
		if !known && !slices.Contains(o.EnablePlugins, plugin) {
			klog.InfoS("Disabling an admission plugin, because the cluster does not serve its objects", "plugin", plugin)
			o.DisablePlugins = append(o.DisablePlugins, plugin)
		}
	}
	return &o, nil
}
