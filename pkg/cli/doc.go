// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the commands of the plugin kubectl sandlot, which the program sandlot
// has too: claim, list, exec, release, top, check and e2b-key. They are a client of the API like
// any other: what they do takes no right that kubectl would not need.
//
// A file is a command, and the cores (holdings.go, pools.go, outcome.go) are values in,
// values out. What servers say is escaped before a terminal sees it, and no token of a
// runtime is printed. An API key is, by the command that makes it.
package cli
