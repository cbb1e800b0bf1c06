// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secrets is what the keepers of an install's own Secrets share, which
// sandlot-controller-manager runs beside its controllers: the manager that runs them,
// and the careful reading and writing of Secrets and ConfigMaps. A keeper reads Secrets
// one by one and watches their metadata only, so that no key stays in its memory, and
// writes no key to a log, whatever -v is.
package secrets
