// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/fairness"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

const (
	// connectionBytes is the memory reserved for a connection. One of HTTP/2 has a buffer of 256 KiB for a
	// frame, decompressed headers of up to 40 times what was sent, and responses that are not read.
	connectionBytes = 4 << 20
	// minConnections and minLargeHeaders are for servers with little memory.
	minConnections, minLargeHeaders = 128, 16
	// connectionGrace is how long a connection is not closed for another after its last request was
	// handled. It is short: requests that are refused protect a connection as well.
	connectionGrace = 100 * time.Millisecond
	// unreadBytes is the memory by which responses of HTTP/2 get slots that are not read: an eighth of it is for them,
	// at 32 KiB each. minUnread is for servers with little memory. WithResponseDeadline has bounds for each user.
	// These are for what is answered without it, before a user is known.
	unreadBytes, minUnread = 8 * 32 << 10, 256
	// headersWithoutSlot is how many bytes the headers of a request may take without a slot for large ones.
	headersWithoutSlot = 16 << 10
)

// headerLimits leave room for a user with some thousands of groups, each a value of one field.
var headerLimits = connections.HeaderLimits{Fields: 200, Bytes: 256 << 10}

// WithConnections marks connections with requests as busy, and refuses requests with too many header fields, or with
// too long ones. Responses have deadlines, by the time limit of requests. It has to be outside of all other handlers.
func WithConnections(handler http.Handler, limit time.Duration) http.Handler {
	return connections.Handler(withDeadlines(handler, limit, clock.RealClock{}), headerLimits)
}

// OpenConnections returns how many connections the memory of this process allows.
func OpenConnections() int { return max(int(memory.Size()/connectionBytes), minConnections) }

// NewConnections returns a pool for the memory of this process: before anything is known about a
// client, its connection takes memory.
func NewConnections() *connections.Pool {
	registerMetrics()
	open := OpenConnections()
	headers := max(open/8, minLargeHeaders)
	unread := max(int(memory.Size()/unreadBytes), minUnread)
	return connections.NewPool(
		connections.Limits{
			Open: open, ResponseGrace: connectionGrace, LargeHeaders: fairness.NewSources(headers, headers/4), WithoutSlot: headersWithoutSlot,
			Unread: connections.UnreadLimits{Slots: fairness.NewSources(unread, unread/4), After: 2 * unreadAfter},
		},
		connections.Metrics{Open: connectionsOpen, Refused: connectionsRefused, Evicted: connectionsEvicted, LargeHeaders: largeHeadersRefused},
	)
}
