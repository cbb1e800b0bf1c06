// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2b

import "time"

// SetReadTimeout says how long the body of a request may take to come.
func (a *API) SetReadTimeout(d time.Duration) { a.readTimeout = d }

// The bounds of what is read of an answer of the API server, and of how many large ones are
// read at a time.
const (
	SmallAnswer = smallAnswer
	MaxAnswer   = maxAnswer
	LargeAtOnce = largeAtOnce
	SmallPage   = smallPage
	MaxPages    = maxPages
	MaxRetries  = maxRetries
)

// LargeAnswers is how many large answers are read now.
func (a *API) LargeAnswers() int { return a.large.Held() }

// Lists is how many lists are read now.
func (a *API) Lists() int { return a.lists.Held() }

// ListsPerTeam is how many lists of a team are read at a time.
const ListsPerTeam = listsPerTeam
