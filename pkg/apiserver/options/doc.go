// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options turns command line flags into the configuration of the API
// server. It decides between a server that belongs to a cluster, which it asks
// about users and admission, and one that stands alone.
package options
