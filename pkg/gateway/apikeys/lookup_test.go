// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apikeys

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/pkg/gateway/lookups"
)

// api answers reads of Secrets: those in found, and else that there is none. Each read waits
// until it may continue.
type api struct {
	found map[string]*corev1.Secret
	goOn  chan struct{}

	reads, running, most atomic.Int64
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.reads.Add(1)
	running := a.running.Add(1)
	defer a.running.Add(-1)
	for {
		most := a.most.Load()
		if running <= most || a.most.CompareAndSwap(most, running) {
			break
		}
	}
	select {
	case <-a.goOn:
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "application/json")
	secret := a.found[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	if secret == nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		return
	}
	_ = json.NewEncoder(w).Encode(secret)
}

func (a *api) secrets(t *testing.T) (*Secrets, *clocktesting.FakeClock) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{AcceptContentTypes: "application/json", ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	return NewSecrets(client.CoreV1(), DefaultNamespace, clk), clk
}

// keptKey returns a key, its text, and the Secret that has it as the API server shows it.
func keptKey() (Key, string, *corev1.Secret) {
	id, text := newText()
	key := Key{Record: Record{ID: id, Team: "team", Name: "n"}, Salt: newSalt()}
	key.Hash = hash(key.Salt, text)
	secret := toSecret(key)
	secret.APIVersion, secret.Kind = "v1", "Secret"
	return key, text, secret
}

// TestGuessesOfOneSource: guesses of one source cause no more reads than its limit, while a
// key that another replica made just now is found for another source. What is beyond is no
// key while the watch works, and busy without it.
func TestGuessesOfOneSource(t *testing.T) {
	_, text, secret := keptKey()
	server := &api{found: map[string]*corev1.Secret{secret.Name: secret}, goOn: make(chan struct{})}
	close(server.goOn)
	s, clk := server.secrets(t)
	k := New(s)
	s.table.replace(nil)
	here, there := lookups.WithSource(t.Context(), "10.0.0.1:1"), lookups.WithSource(t.Context(), "10.0.0.2:1")
	guess := func() error {
		_, guess := newText()
		_, err := k.Authenticate(here, guess)
		return err
	}
	for range 10 * missBurst {
		if err := guess(); !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("a guess: %v", err)
		}
	}
	if reads := server.reads.Load(); reads != missBurst {
		t.Errorf("%d guesses were read %d times, want %d", 10*missBurst, reads, missBurst)
	}
	if _, err := k.Authenticate(there, text); err != nil {
		t.Errorf("a new key from another source: %v", err)
	}

	// As long as the watch is broken, a key that was not read is not reported as wrong.
	clk.Step(watchPatience + time.Second)
	for range missBurst {
		if err := guess(); !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("a guess without a watch: %v", err)
		}
	}
	if err := guess(); !errors.Is(err, errBusy) {
		t.Errorf("one more guess without a watch: %v", err)
	}
}

// TestGuessesOfManySources: guesses of many sources cause no more reads than those of ten, and what
// is beyond is no key.
func TestGuessesOfManySources(t *testing.T) {
	server := &api{goOn: make(chan struct{})}
	close(server.goOn)
	s, _ := server.secrets(t)
	k := New(s)
	s.table.replace(nil)
	for i := range 20 * missBurst {
		_, guess := newText()
		from := lookups.WithSource(t.Context(), fmt.Sprintf("[2001:db8:0:%x::1]:1", i%256))
		if _, err := k.Authenticate(from, guess); !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("a guess: %v", err)
		}
	}
	if reads := server.reads.Load(); reads != 10*missBurst {
		t.Errorf("%d guesses were read %d times, want %d", 20*missBurst, reads, 10*missBurst)
	}
}

// Guessed ids are read 8 at a time, and one that is not there once a second. A key that is
// known does not wait for them, also while the watch is broken.
func TestGuessesCostLittle(t *testing.T) {
	key, text, secret := keptKey()
	server := &api{found: map[string]*corev1.Secret{secret.Name: secret}, goOn: make(chan struct{})}
	s, clk := server.secrets(t)
	k := New(s)
	s.table.replace([]Key{key})

	var guesses []string
	for range 40 {
		_, guess := newText()
		guesses = append(guesses, guess)
	}
	var all sync.WaitGroup
	guessAll := func() {
		for _, guess := range guesses {
			all.Go(func() {
				if _, err := k.Authenticate(t.Context(), guess); !errors.Is(err, ErrUnknownKey) && !errors.Is(err, errBusy) {
					t.Errorf("a guess: %v", err)
				}
			})
		}
	}
	guessAll()
	for range maxConcurrentReads { // so many were let in, and wait
		server.goOn <- struct{}{}
	}
	if _, err := k.Authenticate(t.Context(), text); err != nil {
		t.Errorf("a known key, during guesses: %v", err)
	}
	close(server.goOn)
	all.Wait()
	if most := server.most.Load(); most > maxConcurrentReads {
		t.Errorf("%d reads at a time", most)
	}
	reads := server.reads.Load()
	guessAll()
	all.Wait()
	if again := server.reads.Load(); reads != int64(len(guesses)) || again != reads {
		t.Errorf("%d guesses were read %d times, and then %d times", len(guesses), reads, again-reads)
	}

	// With no sign of the watch, the known key is read, once in 5 seconds.
	clk.Step(watchPatience + time.Second)
	reads = server.reads.Load()
	for range 3 {
		if caller, err := k.Authenticate(t.Context(), text); err != nil || caller.Team != "team" {
			t.Errorf("a known key, without a watch: %+v, %v", caller, err)
		}
	}
	if again := server.reads.Load(); again != reads+1 {
		t.Errorf("it was read %d times", again-reads)
	}
	delete(server.found, secret.Name)
	clk.Step(foundTTL + time.Second)
	if _, err := k.Authenticate(t.Context(), text); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a key that has gone, without a watch: %v", err)
	}
}

// A Secret that is not as this version writes it is no key.
func TestDamagedSecrets(t *testing.T) {
	id, text := newText()
	key := Key{Record: Record{ID: id, Team: "team", Name: "n"}, Salt: newSalt(), Ancestors: []string{"0123456789abcdef"}}
	key.Hash = hash(key.Salt, text)
	if got, err := fromSecret(toSecret(key)); err != nil || got.CreatedBy != key.Ancestors[0] || !got.matches(text) {
		t.Errorf("an undamaged one is %+v, %v", got.Record, err)
	}
	for name, damage := range map[string]func(*corev1.Secret){
		"another type":  func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"another name":  func(s *corev1.Secret) { s.Name = "key-" + id },
		"no id":         func(s *corev1.Secret) { s.Name = namePrefix + "x" },
		"no team":       func(s *corev1.Secret) { s.Labels = nil },
		"a long team":   func(s *corev1.Secret) { s.Labels[LabelTeam] = strings.Repeat("t", 41) },
		"no salt":       func(s *corev1.Secret) { delete(s.Data, dataSalt) },
		"no hash":       func(s *corev1.Secret) { s.Data[dataHash] = nil },
		"a short hash":  func(s *corev1.Secret) { s.Data[dataHash] = s.Data[dataHash][1:] },
		"no name":       func(s *corev1.Secret) { delete(s.Data, dataName) },
		"a wrong maker": func(s *corev1.Secret) { s.Data[dataAncestors] = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			secret := toSecret(key)
			damage(secret)
			if got, err := fromSecret(secret); !errors.Is(err, errDamaged) {
				t.Errorf("it is %+v, %v", got.Record, err)
			}
		})
	}
}
