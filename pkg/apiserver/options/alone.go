// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// applyAlone configures a server without a cluster: users are who a certificate
// of the own CA says, the group system:masters may do everything, and no other
// user anything. There is no admission, for all plugins need a cluster.
func (o *Options) applyAlone(cfg *genericapiserver.RecommendedConfig) error {
	ca, err := o.Authentication.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return fmt.Errorf("loading the CA of clients: %w", err)
	}
	if err := cfg.Authentication.ApplyClientCert(ca, cfg.SecureServing); err != nil {
		return fmt.Errorf("using the CA of clients: %w", err)
	}
	anonymous := &apiserverapi.AnonymousAuthConfig{Enabled: true}
	for _, p := range healthPaths {
		anonymous.Conditions = append(anonymous.Conditions, apiserverapi.AnonymousAuthCondition{Path: p})
	}
	authenticator, definitions, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          anonymous,
		ClientCertificateCAContentProvider: ca,
	}.New()
	if err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	cfg.Authentication.Authenticator = rememberClients(authenticator, ca.VerifyOptions)
	cfg.OpenAPIConfig.SecurityDefinitions = definitions

	health, err := path.NewAuthorizer(healthPaths)
	if err != nil {
		return fmt.Errorf("authorization: %w", err)
	}
	cfg.Authorization.Authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "sandlot.io/masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "sandlot.io/health", Authorizer: health},
	)
	if err != nil {
		return fmt.Errorf("authorization: %w", err)
	}

	features := *o.Features
	features.EnablePriorityAndFairness = false // its levels are objects in a cluster; the limits in flight hold
	if err := features.ApplyTo(&cfg.Config, nil, nil); err != nil {
		return fmt.Errorf("features: %w", err)
	}
	return nil
}
