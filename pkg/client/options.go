// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"time"
)

// AnnotationKey is on claims that ClaimAndWait makes, with the key of the call: see
// Options.Key.
const AnnotationKey = "client.sandlot.io/key"

// GiveUpPolicy says what becomes of a claim that ClaimAndWait no longer waits for.
type GiveUpPolicy string

const (
	// GiveUpKeep leaves the claim alone. It gets sandboxes until its claimTimeout, and keeps
	// what it has.
	GiveUpKeep GiveUpPolicy = "Keep"
	// GiveUpGiveBack gives the claim and its sandboxes back, as GiveBack does.
	GiveUpGiveBack GiveUpPolicy = "GiveBack"
)

// Defaults of Options.
const (
	// DefaultRetryFor is how long a server that gives no clear answer is asked again.
	DefaultRetryFor = time.Minute
	// DefaultGiveUpTimeout is how long ClaimAndWait takes to leave things in order.
	DefaultGiveUpTimeout = 15 * time.Second
)

// Options change how ClaimAndWait goes about it. The zero value is a good choice.
type Options struct {
	// Key distinguishes the claim of this call from any other of its name. Empty is a random key,
	// so that a claim that was there before is never taken for the one that was asked for.
	// A program that wants to find its claim again after a restart gives name and Key, such
	// as the id of a job: then a claim of this name and key that asks for the same, its
	// times apart, is the one that was meant. The key is no secret: it is an annotation, and
	// everyone who may read claims in the namespace knows it, and may make a claim with it.
	// So with a Key of one's own in a namespace that is shared with others, set User.
	Key string

	// User is who must have made a claim that was there before, as the server has recorded
	// in its annotation sandlot.io/claimed-by, which clients cannot write. It is the name
	// that "kubectl auth whoami" prints, such as system:serviceaccount:NAMESPACE:NAME. Empty is
	// not compared: then who replaces a claim between an answer that was lost and the look
	// at what is there, and repeats its key, has theirs taken for it.
	User string

	// RetryShortage repeats the create while it is refused because too few sandboxes are
	// available (onShortage: Fail), about every second, or because too many claims wait, after
	// the Retry-After of the server. It ends with the context. Default false: that error is returned at once.
	RetryShortage bool

	// RetryFor is how long one that gives no clear answer (a lost connection, 500, 502, 503,
	// 504, or 429 because it is overloaded) is asked again, counted from the first such
	// answer after a clear one. The end of the context comes first. Default one minute.
	RetryFor time.Duration

	// AccessTokens, if not nil, receives the access tokens of the agent-runtimes by sandbox
	// name. They are secrets. It requires the right to create sandboxclaims/runtimeaccess for
	// all names; without it the create fails, and nothing is claimed. It stays empty if the
	// claim has to wait, existed before or has more than v1alpha1.MaxResponseTokens sandboxes,
	// if admission changed the request, or if a response was lost: call RuntimeAccess then. It
	// works with clients of NewForConfig, or with ReadAccessTokens.
	AccessTokens map[string]string

	// OnGiveUp says what becomes of the claim when the context ends, or RetryFor is over,
	// before the claim is Completed. Default GiveUpKeep.
	OnGiveUp GiveUpPolicy

	// GiveUpTimeout bounds what is done after that, with a context of its own: to look what
	// there is, and with GiveUpGiveBack to give it back. A create that is under way when the
	// context ends has as long to be answered, with GiveUpGiveBack. Default 15 seconds.
	GiveUpTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.Key = cmp.Or(o.Key, random())
	o.RetryFor = cmp.Or(o.RetryFor, DefaultRetryFor)
	o.OnGiveUp = cmp.Or(o.OnGiveUp, GiveUpKeep)
	o.GiveUpTimeout = cmp.Or(o.GiveUpTimeout, DefaultGiveUpTimeout)
	return o
}
