// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streams bounds requests that continue for as long as their clients like.
package streams

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
)

// maxStreams is how many there are at a time.
const maxStreams = 256

// Limit bounds streams.
type Limit struct{ slots chan struct{} }

// New returns a Limit.
func New() *Limit { return &Limit{make(chan struct{}, maxStreams)} }

// Begin begins a stream. done must be called when it has ended.
func (l *Limit) Begin() (done func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d streams, and no more may be", maxStreams))
	}
}

// keepAlive is how often a client gets an event if it asks for nothing else.
const keepAlive = 90 * time.Second

// KeepAlive is how often a client wants to get an event, for proxies that end connections
// on which nothing is sent.
func KeepAlive(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Keepalive-Ping-Interval"), 10, 16)
	if err != nil || seconds == 0 {
		return keepAlive
	}
	return time.Duration(seconds) * time.Second
}
