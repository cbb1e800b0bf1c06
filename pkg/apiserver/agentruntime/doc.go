// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentruntime brings what claims ask for into the agent-runtimes of their
// sandboxes: with which token, what is kept of it, which volumes may be mounted, and what
// is reported when it fails.
package agentruntime
