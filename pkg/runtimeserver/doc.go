// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimeserver has the parts of sandlot-runtime, an agent-runtime: a program that
// runs in the container of a sandbox, and serves processes and files there by the
// protocol of envd.
//
// It runs beside code that is not trusted, often in the same container. So before POST
// /init has set a token it serves no one; files are opened as the user that a request
// names, never with more rights; and everything that requests can make it keep is bounded.
package runtimeserver
