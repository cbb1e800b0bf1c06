// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import "time"

// SetReadTimeout says how long the body of a request may take to come.
func (a *API) SetReadTimeout(d time.Duration) { a.readTimeout = d }

// The bounds of what is read of an answer of the API server, and of how many large ones are
// read at a time.
const (
	SmallResponse = smallResponse
	MaxResponse   = maxResponse
	LargeAtOnce   = largeAtOnce
	SmallPage     = smallPage
	MaxPages      = maxPages
	MaxRetries    = maxRetries
	MaxListBytes  = maxListBytes
)

// LargeResponses is how many large answers are read now.
func (a *API) LargeResponses() int { return a.largeResponseSlots.Held() }

// Lists is how many lists are read now.
func (a *API) Lists() int { return a.listSlots.Held() }

// ListsPerTeam is how many lists of a team are read at a time.
const ListsPerTeam = listsPerTeam
