// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package envdtest is for tests only: a double of envd, the daemon in sandboxes that the
// E2B SDKs speak with. It speaks envd's HTTP and connect protocol as the SDKs need it for
// commands and files, over files in memory. It runs nothing: commands are a few words that
// it interprets itself, see run.
//
//	fleet := envdtest.Start(t)
//	fleet.At("127.70.0.9") // envd at that address, port 49983
//	fleet.Follow(t, agents, "default") // at those of all sandboxes, as they come
//
// /init and the access token are those of runtimetest.
package envdtest
