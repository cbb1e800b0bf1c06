// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access keeps what POST /init has set: the access token of the runtime, and the
// environment of its processes.
package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Bounds of what /init can set, together.
const (
	maxVariables     = 1024
	maxVariableBytes = 256 << 10
	maxTokenBytes    = 4 << 10
)

// ErrToken means that the access token is missing or another one, and ErrNoToken that the
// runtime has none yet.
var (
	ErrToken   = errors.New("the access token is missing or wrong")
	ErrNoToken = errors.New("the runtime has no access token yet, and serves nothing before: POST /init sets it")
)

// Request is the body of POST /init. All of it may be missing but the token.
type Request struct {
	// AccessToken is what later calls need. The first call sets it, and all others must
	// have the same one.
	AccessToken string `json:"accessToken"`
	// EnvVars are added to those of earlier calls.
	EnvVars map[string]string `json:"envVars"`
	// Timestamp is when the call was made. One that is not newer than an earlier call
	// changes nothing.
	Timestamp *time.Time `json:"timestamp"`
	// DefaultUser and DefaultWorkdir are for requests that name none.
	DefaultUser    string `json:"defaultUser"`
	DefaultWorkdir string `json:"defaultWorkdir"`
	// VolumeMounts and CABundle are not served.
	VolumeMounts notEmpty `json:"volumeMounts"`
	CABundle     string   `json:"caBundle"`
}

// notEmpty reports whether a list in JSON has items. It keeps none of them: in memory they would take many times their bytes.
type notEmpty bool

// UnmarshalJSON implements json.Unmarshaler.
func (n *notEmpty) UnmarshalJSON(value []byte) error {
	items, isList := bytes.CutPrefix(value, []byte("["))
	if !isList && string(value) != "null" {
		return errors.New("not a list")
	}
	*n = notEmpty(isList && len(bytes.TrimSpace(bytes.TrimSuffix(items, []byte("]")))) > 0)
	return nil
}

// State is what /init has set. It is safe for concurrent use.
type State struct {
	clock clock.PassiveClock

	mu            sync.Mutex
	token         string
	latest        time.Time
	env           map[string]string
	user, workdir string
}

// New returns a State without a token: nothing is allowed.
func New(clock clock.PassiveClock) *State {
	return &State{clock: clock, env: map[string]string{}}
}

// Init does what POST /init asks for. The error is ErrToken, or says what is wrong with the
// request.
func (s *State) Init(r Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What others send is none of their business before they have shown the token.
	if s.token != "" && !same(r.AccessToken, s.token) {
		return ErrToken
	}
	if r.AccessToken == "" {
		return ErrToken
	}
	env, err := s.check(r)
	if err != nil {
		return err
	}
	s.token = r.AccessToken
	if r.Timestamp != nil {
		if !r.Timestamp.After(s.latest) {
			return nil
		}
		s.latest = *r.Timestamp
	}
	s.env = env
	if r.DefaultUser != "" {
		s.user = r.DefaultUser
	}
	if r.DefaultWorkdir != "" {
		s.workdir = r.DefaultWorkdir
	}
	return nil
}

// check returns the environment as the request makes it. Its errors name variables, but
// no values.
func (s *State) check(r Request) (map[string]string, error) {
	if bool(r.VolumeMounts) || r.CABundle != "" {
		return nil, errors.New("volumeMounts and caBundle are not served by this runtime")
	}
	if len(r.AccessToken) > maxTokenBytes {
		return nil, fmt.Errorf("accessToken has more than %d bytes", maxTokenBytes)
	}
	env := maps.Clone(s.env)
	maps.Copy(env, r.EnvVars)
	size := 0
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("envVars: %q is no name of a variable, or its value has a NUL byte", name)
		}
		size += len(name) + len(value)
	}
	if len(env) > maxVariables || size > maxVariableBytes {
		return nil, fmt.Errorf("envVars: more than %d variables or %d bytes", maxVariables, maxVariableBytes)
	}
	return env, nil
}

// Check returns nil if a token is that of the runtime, otherwise ErrToken or ErrNoToken.
func (s *State) Check(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.token == "":
		return ErrNoToken
	case !same(token, s.token):
		return ErrToken
	}
	return nil
}

// Signed reports whether the query of a URL of /files was signed with the token, for an
// operation: read or write.
func (s *State) Signed(query url.Values, operation string) bool {
	s.mu.Lock()
	token := s.token
	s.mu.Unlock()
	if token == "" {
		return false
	}
	text := strings.Join([]string{query.Get("path"), operation, query.Get("username"), token}, ":")
	if until := query.Get("signature_expiration"); until != "" {
		seconds, err := strconv.ParseInt(until, 10, 64)
		if err != nil || s.clock.Now().Unix() > seconds {
			return false
		}
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return same(query.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
}

// same compares secrets in a time that depends on neither.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Env is the environment for processes.
func (s *State) Env() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.env)
}

// Defaults are the user and the folder for requests that name none; empty if they were not
// set.
func (s *State) Defaults() (user, folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.user, s.workdir
}
