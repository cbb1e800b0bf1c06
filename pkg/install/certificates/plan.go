// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"slices"
	"time"
)

// This file decides; it reads no clock and writes nothing.

// signer is the CA that signs, the one after it if it is made already, and since
// when each has been published wherever it must be. Zero is not yet. A pair that is
// missing or damaged is nil.
type signer struct {
	current, next            *keyPair
	published, nextPublished time.Time
	// requested means that the annotation AnnotationRotateCA asks for the next one now.
	requested bool
}

// signerStep is what to do about a signer.
type signerStep int

const (
	signerKeep     signerStep = iota
	signerMake                // there is none: make the CA that signs
	signerMakeNext            // make the one after it, to be published
	signerPromote             // the next one signs from now on
)

// settled reports whether a CA that has been published since then may sign.
type settled func(since time.Time) bool

// step says what to do next. A CA that cannot sign any more makes way for the next
// one even if that is not settled: nothing gets worse by it.
func (s signer) step(now time.Time, ok settled) signerStep {
	current, next := lives(s.current, now), lives(s.next, now)
	switch {
	case !current && next, current && next && ok(s.nextPublished):
		return signerPromote
	case !current:
		return signerMake
	case !next && (s.requested || !now.Before(refreshAt(s.current.cert))):
		return signerMakeNext
	}
	return signerKeep
}

func lives(p *keyPair, now time.Time) bool {
	return p != nil && !now.Before(p.cert.NotBefore) && now.Before(p.cert.NotAfter)
}

// trusted returns the CAs to trust: those of the signer, and of the others known
// all that have not expired, for there may be certificates of theirs in use.
func (s signer) trusted(known []*x509.Certificate, now time.Time) []*x509.Certificate {
	var cas []*x509.Certificate
	add := func(ca *x509.Certificate) {
		if now.Before(ca.NotAfter) && !slices.ContainsFunc(cas, ca.Equal) {
			cas = append(cas, ca)
		}
	}
	for _, pair := range []*keyPair{s.current, s.next} {
		if pair != nil {
			add(pair.cert)
		}
	}
	for _, ca := range known {
		add(ca)
	}
	return cas
}

// Why a certificate is made anew.
const (
	reasonMissing   = "it is missing or damaged"
	reasonInvalid   = "no client would accept it"
	reasonNames     = "its names have changed"
	reasonEnding    = "it is near its end"
	reasonOldSigner = "its CA is being replaced"
)

// renewal returns why a certificate must be made anew, or "" if it must not. As
// long as it is good, it is not exchanged for one of a CA that is not settled.
func renewal(have *keyPair, t target, bundle []*x509.Certificate, ca *keyPair, caSettled bool, now time.Time) string {
	switch {
	case have == nil:
		return reasonMissing
	case !have.serves(t, bundle, now):
		return reasonInvalid
	case !have.signedBy(ca) && !caSettled:
		return ""
	case !have.isFor(t):
		return reasonNames
	case !now.Before(refreshAt(have.cert)):
		return reasonEnding
	case !have.signedBy(ca):
		return reasonOldSigner
	}
	return ""
}
