// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/connections"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/access"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/files"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/process"
	"github.com/sandlot-io/sandlot/pkg/runtimeserver/streams"
)

const (
	maxConnections    = 1024
	maxHeaderBytes    = 16 << 10
	maxHeaderFields   = 100
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// shutdownGrace is how long requests have to end when all processes have ended.
	shutdownGrace = 2 * time.Second
)

// forwarded are the signals that go to the program that runs beside the server.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// server is the program while it serves.
type server struct {
	options   options
	manager   *process.Manager
	files     *files.Service
	http      *http.Server
	listeners []net.Listener
	serving   sync.WaitGroup
}

// serve serves until a signal comes or the command ends, and returns the exit code.
func serve(o options, stdout, stderr io.Writer) (int, error) {
	// Processes of the same user could read the token, and the variables, out of the memory of a
	// process that can be traced.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("closing the memory to other processes: %w", err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	// Without this, a write to a log that no one reads any more would end the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	s, err := listen(o)
	if err != nil {
		return 1, err
	}
	defer s.close()
	var ended <-chan syscall.WaitStatus
	if len(o.command) > 0 {
		if ended, err = s.manager.RunMain(o.command); err != nil {
			return 127, err
		}
	}
	failed := s.start(log.New(stderr, "sandlot-runtime: ", 0))
	if o.inBackground {
		logToContainer(syscall.Stderr)
	}
	_, _ = fmt.Fprintln(stdout, listening+s.addresses()) // who started it may not read it
	if o.inBackground {
		logToContainer(syscall.Stdout)
	}
	return s.wait(signals, ended, failed)
}

// wait waits until a signal ends the program, its command ends or it fails, and returns the exit code. Signals are for
// the command, if there is one.
func (s *server) wait(signals <-chan os.Signal, ended <-chan syscall.WaitStatus, failed <-chan error) (int, error) {
	for {
		select {
		case received := <-signals:
			number, ok := received.(syscall.Signal)
			switch {
			case !ok:
			case ended != nil:
				s.manager.SignalMain(number)
			case number == syscall.SIGINT || number == syscall.SIGTERM || number == syscall.SIGQUIT:
				return 0, nil
			}
		case status := <-ended:
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		case err := <-failed:
			return 1, err
		}
	}
}

// listen makes a server that listens, and has to be closed.
func listen(o options) (*server, error) {
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	s := &server{options: o}
	add := func(port int, config *tls.Config) error {
		network := net.ListenConfig{}
		network.SetMultipathTCP(!o.sameUser) // sameUserListener would not find such connections
		l, err := network.Listen(context.Background(), "tcp", net.JoinHostPort(o.address, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		l = connections.NewPool(connections.Limits{Open: maxConnections, ResponseGrace: 100 * time.Millisecond}, connections.Metrics{}).Listener(l)
		if o.sameUser {
			l = sameUserListener{Listener: l, uid: os.Getuid()}
		}
		if config != nil {
			l = tls.NewListener(l, config)
		}
		s.listeners = append(s.listeners, l)
		return nil
	}
	err = add(o.port, nil)
	if err == nil && config != nil {
		err = add(o.tlsPort, config)
	}
	if err == nil {
		s.manager, err = process.NewManager(clock.RealClock{})
	}
	if err != nil {
		for _, l := range s.listeners {
			_ = l.Close() // no one was served
		}
		return nil, err
	}
	c, state, limit := clock.RealClock{}, access.New(clock.RealClock{}), streams.New()
	s.files = files.NewService(state, limit, c)
	h := newHandler(state, process.NewService(s.manager, state, limit), s.files, c)
	h.initOverTLS = config != nil
	limits := connections.HeaderLimits{Fields: maxHeaderFields, Bytes: maxHeaderBytes}
	s.http = &http.Server{Handler: connections.Handler(h, limits), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
	return s, nil
}

// start serves. What comes from the channel ends the program.
func (s *server) start(logger *log.Logger) <-chan error {
	s.http.ErrorLog = logger
	failed := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		s.serving.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving %s: %w", l.Addr(), err)
			}
		})
	}
	return failed
}

func (s *server) addresses() string {
	var all []string
	for _, l := range s.listeners {
		all = append(all, l.Addr().String())
	}
	return strings.Join(all, " and ")
}

// close ends all processes, then all requests.
func (s *server) close() {
	s.manager.Stop()
	s.files.Close()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace) // of the program, not of a request
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // streams of watches do not end by themselves
	}
	for _, l := range s.listeners {
		_ = l.Close() // it may never have served
	}
	s.serving.Wait()
}

// tls is how the HTTPS server speaks; nil if there is none.
func (o options) tls() (*tls.Config, error) {
	if o.cert == "" {
		return nil, nil
	}
	if _, err := tls.LoadX509KeyPair(o.cert, o.key); err != nil {
		return nil, fmt.Errorf("reading --tls-cert-file and --tls-key-file: %w", err)
	}
	text, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, fmt.Errorf("reading --tls-client-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-client-ca-file: %s has no certificates", o.ca)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"http/1.1"},
		// Read for each connection: certificates are renewed while a sandbox runs.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.cert, o.key)
			return &pair, err
		},
	}, nil
}
