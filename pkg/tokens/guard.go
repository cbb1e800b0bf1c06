// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens bounds what clients with bad bearer tokens cost. Each token that is not
// known takes a TokenReview, for which a server has a limited rate: without bounds, a
// flood of bad tokens makes everyone wait who comes with a new one. Besides, it lets to
// metrics who may read them.
package tokens

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sandlot-io/sandlot/pkg/fairness"
)

const (
	// maxAtOnce is how many tokens that are not known are under review at the same time. A
	// source has at most maxAtOnceOfSource of these places. A token from several sources counts
	// for each. Requests with one token wait for one review: no more than maxWaitingOfSource
	// requests from one source, with whatever tokens.
	maxAtOnce          = 128
	maxAtOnceOfSource  = 32
	maxWaitingOfSource = 1024
	// A source may present badTokensAtOnce bad tokens, and badTokensPerSecond more each
	// second.
	badTokensAtOnce    = 50
	badTokensPerSecond = 5
	// maxKnown tokens and maxSources sources are remembered.
	maxKnown, maxSources = 16384, 16384
	// rejectedTTL is how long a rejected token is refused without asking. It is short, as
	// a service account may be made again.
	rejectedTTL = 5 * time.Second
)

// Guard refuses requests with tokens that are not known with 429 where their source has its
// share of them in flight, or has presented too many bad ones. A token that was accepted
// lately passes at once. share.Source says what a source is: the peer, whatever its headers
// say.
type Guard struct {
	acceptedTTL time.Duration
	clock       clock.PassiveClock
	// known holds by credentials whether they were accepted.
	known *cache.LRUExpireCache

	// reviews are the places of reviews.
	reviews *fairness.Sources

	mu      sync.Mutex
	sources *lru.Cache // of *source by share.Source
}

// source is under the lock of the guard.
type source struct {
	// requests are those that wait, by what they present; waiting is how many there are.
	requests map[credentials]*pendingReview
	waiting  int
	// bad is what may still fail.
	bad *rate.Limiter
}

// pendingReview counts the requests with the same credentials.
type pendingReview struct {
	requests int
	// release gives back the place of the review.
	release func()
	// worst is the worst outcome so far.
	worst outcome
}

// outcome is how the review of a token ended.
type outcome int

const (
	good       outcome = iota
	unanswered         // the review failed: nothing is known of the token
	bad
)

// NewGuard returns a guard that remembers for a while which tokens were accepted.
func NewGuard(acceptedTTL time.Duration, c clock.Clock) *Guard {
	return &Guard{
		acceptedTTL: acceptedTTL,
		clock:       c,
		known:       cache.NewLRUExpireCacheWithClock(maxKnown, c),
		reviews:     fairness.NewSources(maxAtOnce, maxAtOnceOfSource),
		sources:     lru.New(maxSources),
	}
}

// credentials are the hash of all in a request that authenticates it.
type credentials [sha256.Size]byte

// attempt is one request with a token, for the authenticator behind the handlers.
type attempt struct {
	credentials credentials
	rejected    bool
	// end gives the place of the attempt back, and counts its token if that is not good.
	end func(outcome)
}

type attemptKey struct{}

// Handler returns next behind the guard. Authenticator must be among what is behind it.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		presented, ok := credentialsOf(req)
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		a := &attempt{credentials: presented, end: func(outcome) {}}
		accepted, known := g.known.Get(presented)
		if known {
			a.rejected = accepted == false
		} else if a.end = g.begin(fairness.Source(req.RemoteAddr), presented); a.end == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests with tokens that are not known, please try again later.", http.StatusTooManyRequests)
			return
		}
		defer a.end(good)
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), attemptKey{}, a)))
	})
}

// Authenticator returns inner, from which the guard learns which tokens are good.
func (g *Guard) Authenticator(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		a, guarded := req.Context().Value(attemptKey{}).(*attempt)
		if !guarded {
			return inner.AuthenticateRequest(req)
		}
		if a.rejected {
			return nil, false, nil
		}
		response, ok, err := inner.AuthenticateRequest(req)
		switch {
		case err == nil && ok && response.User.GetName() == user.Anonymous: // by something else than a token
			a.end(good)
		case err == nil && ok:
			g.known.Add(a.credentials, true, g.acceptedTTL)
			a.end(good)
		case isUnanswered(err):
			a.end(unanswered)
		default:
			g.known.Add(a.credentials, false, rejectedTTL)
			a.end(bad)
		}
		return response, ok, err
	})
}

// begin takes a place, or shares that of a request with the same credentials, and returns what
// gives it back, which may be called several times and counts once; nil if there is none.
func (g *Guard) begin(from string, presented credentials) func(outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var s *source
	if found, ok := g.sources.Get(from); ok {
		s = found.(*source)
	} else {
		s = &source{requests: map[credentials]*pendingReview{}, bad: rate.NewLimiter(badTokensPerSecond, badTokensAtOnce)}
		g.sources.Add(from, s)
	}
	if s.waiting >= maxWaitingOfSource || s.bad.TokensAt(g.clock.Now()) < 1 {
		return nil
	}
	shared := s.requests[presented]
	if shared == nil {
		release, ok := g.reviews.Take(from)
		if !ok {
			return nil
		}
		shared = &pendingReview{release: release}
		s.requests[presented] = shared
	}
	shared.requests++
	s.waiting++
	var once sync.Once
	return func(o outcome) {
		once.Do(func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			s.waiting--
			shared.worst = max(shared.worst, o)
			if shared.requests--; shared.requests > 0 {
				return
			}
			delete(s.requests, presented)
			shared.release()
			s.count(shared.worst, g.clock.Now())
		})
	}
}

// count charges the rate limiter of the source. Bad tokens are charged even if that makes the
// limiter negative, by at most maxAtOnceOfSource; reviews that failed never do.
func (s *source) count(o outcome, now time.Time) {
	switch o {
	case bad:
		s.bad.ReserveN(now, 1)
	case unanswered:
		s.bad.AllowN(now, 1)
	}
}

// credentialsOf returns what a request authenticates with, if a token may be in it: in
// the header, or for a WebSocket among the protocols. The certificate belongs to it: what
// is accepted with one says nothing about the token.
func credentialsOf(req *http.Request) (credentials, bool) {
	presented := req.Header.Values("Authorization")
	for _, protocols := range req.Header.Values("Sec-Websocket-Protocol") {
		if strings.Contains(protocols, "base64url.bearer.authorization.k8s.io.") {
			presented = append(slices.Clip(presented), protocols)
		}
	}
	if len(presented) == 0 {
		return credentials{}, false
	}
	hash := sha256.New()
	for _, value := range presented { // no header has a NUL
		hash.Write(append([]byte(value), 0))
	}
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		hash.Write(req.TLS.PeerCertificates[0].Raw)
	}
	return credentials(hash.Sum(nil)), true
}

// isUnanswered reports whether authentication failed because the cluster was not heard,
// which says nothing about the token.
func isUnanswered(err error) bool {
	if several, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return slices.ContainsFunc(several.Errors(), isUnanswered)
	}
	var status apierrors.APIStatus
	var network net.Error
	return errors.As(err, &status) || errors.As(err, &network) || errors.Is(err, context.Canceled)
}
