// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
)

// Config returns a copy of config for programs that claim sandboxes: without client-go's
// limit of 5 requests a second, where config sets none, and with ReadAccessTokens. The server has
// its own limits, and answers 429 beyond them. A program that sets QPS or a RateLimiter keeps
// them. Where config sets no media types, responses are accepted in protobuf and in JSON, which older
// servers send, and requests are sent in JSON, which these take alone.
func Config(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	if own.QPS == 0 && own.RateLimiter == nil {
		own.QPS = -1
	}
	if own.UserAgent == "" {
		own.UserAgent = rest.DefaultKubernetesUserAgent() + " sandlot-client"
	}
	if own.ContentType == "" && own.AcceptContentTypes == "" {
		own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	own.Wrap(ReadAccessTokens)
	return own
}

// NewForConfig returns a clientset with Config(config).
func NewForConfig(config *rest.Config) (*versioned.Clientset, error) {
	return versioned.NewForConfig(Config(config))
}
