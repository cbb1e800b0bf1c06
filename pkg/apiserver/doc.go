// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver puts the API server together: the kinds, what is stored for
// each, the OpenAPI documents, and how requests are decoded. It contains no
// rules of any kind, and nothing of how claims are served.
package apiserver
