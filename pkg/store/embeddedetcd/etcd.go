// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/sandlot-io/sandlot/pkg/datadir"
)

const (
	// memberName and peerURL are written into the data at the first start and
	// never change: the one member has no peers, so nothing listens there.
	memberName = "sandlot"
	peerURL    = "http://127.0.0.1:2380"

	// defaultQuota is what the data may take if the caller does not say.
	defaultQuota = 8 << 30

	// catchUpEntries are writes that etcd keeps in memory for members that are behind, of
	// which there are none. Its own default is 5,000: with a large claim in each of them
	// that is more than all the rest.
	catchUpEntries = 100

	// snapshotEntries are writes after which etcd notes that its data has them. Only those
	// since then are read again from its log at the next start. Its own default is 10,000,
	// of which one may be as large as a claim of hundreds of sandboxes.
	snapshotEntries = 500

	// CompactionBatchLimit is how many revisions etcd looks at in one transaction when it compacts.
	// The transaction writes all pages again that also hold revisions which stay, before it frees
	// the old ones, so the file grows: with etcd's own default of 1,000 and revisions of some 40 KB
	// by tens of MiB, which an etcd near its quota does not have. An external etcd needs the same.
	CompactionBatchLimit = 100

	// CompactionSleepInterval is how long etcd waits between two of these transactions: a tenth of
	// its own default, as they are a tenth as large.
	CompactionSleepInterval = time.Millisecond

	// progressNotify is what the API server's watch caches need to serve
	// consistent reads from memory soon after a write.
	progressNotify = 5 * time.Second

	// maxSocketPath is what the smallest of the common limits (108 bytes on
	// Linux, 104 elsewhere) leaves beside the terminating zero.
	maxSocketPath = 103
)

// errData introduces what etcd has to say when it does not survive its start.
var errData = errors.New("its data cannot be used, it may be damaged")

// Server is a running etcd.
type Server struct {
	dir       *datadir.Dir
	quota     int64
	socketDir string
	etcd      *embed.Etcd
	failure   *failure

	// snapshotLock is read-locked while a snapshot is read, and write-locked during a
	// defragmentation.
	snapshotLock sync.RWMutex
}

// Start runs etcd on the data in dir, which is made if it is missing, and
// returns when it serves. The data is fsynced before a write is answered, so
// killing the process loses nothing.
//
// The options are WithQuota.
//
// Errors are datadir.ErrForeign, datadir.ErrLocked, or say what etcd found
// wrong with the data. After an error etcd may have left goroutines and locks
// behind: the process is expected to end.
func Start(ctx context.Context, dir string, options ...Option) (*Server, error) {
	data, err := datadir.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: data, quota: defaultQuota, failure: newFailure()}
	for _, option := range options {
		option(s)
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded etcd in %s: %w", data.Path(), err), s.cleanup())
	}
	return s, nil
}

// Option is what a caller may want otherwise.
type Option func(*Server)

// WithQuota bounds the file of the data to a number of bytes, and somewhat more. 0 is the
// default of 8 GiB. What does not fit any more is refused; deletes are not.
func WithQuota(bytes int64) Option {
	return func(s *Server) {
		if bytes != 0 {
			s.quota = bytes
		}
	}
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.socketDir, err = makeSocketDir(); err != nil {
		return err
	}
	if err := s.beginBootstrap(); err != nil {
		return err
	}
	s.etcd, err = guard(ctx, s.failure, func() (*embed.Etcd, error) {
		return embed.StartEtcd(s.config())
	})
	if err != nil {
		return err
	}
	// Not cut short by ctx: to close an etcd that is not ready yet can block for
	// ever, and it is ready in a moment.
	select {
	case <-s.etcd.Server.ReadyNotify():
		if err = errors.Join(s.endBootstrap(), ctx.Err()); err == nil {
			s.failure.logging.Store(true)
			return nil
		}
	case err := <-s.failure.errs:
		s.etcd = nil // it died half-way: closing it could block for ever
		return fmt.Errorf("%w: %w", errData, err)
	case <-s.etcd.Server.StopNotify():
		err = errors.New("stopped before it was ready")
	}
	s.stop()
	s.etcd = nil
	return err
}

func (s *Server) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = s.etcdDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.failure.logger())

	peer, _ := url.Parse(peerURL)
	client := s.socketURL("client")
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	// A socket of its own for HTTP keeps gRPC free of the multiplexer that
	// would otherwise look at every connection.
	cfg.ListenClientHttpUrls = []url.URL{s.socketURL("http")}
	cfg.InitialCluster = cfg.InitialClusterFromName(memberName)
	// No other member can be elected, so the wait for other candidates is for nothing.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.EnableGRPCGateway = false
	// A process that can open the socket may do everything, so there are no users.
	cfg.AuthToken = ""

	cfg.QuotaBackendBytes = s.quota
	cfg.CompactionBatchLimit, cfg.CompactionSleepInterval = CompactionBatchLimit, CompactionSleepInterval
	cfg.SnapshotCount = snapshotEntries
	cfg.SnapshotCatchUpEntries = catchUpEntries
	cfg.WatchProgressNotifyInterval = progressNotify
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ChainStreamInterceptor(s.snapshotInterceptor), grpc.ChainUnaryInterceptor(s.defragmentInterceptor),
	}
	return cfg
}

func (s *Server) socketURL(name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(s.socketDir, name)}
}

// Endpoints is where etcd clients of this user reach the server.
func (s *Server) Endpoints() []string {
	u := s.socketURL("client")
	return []string{u.String()}
}

// Failed delivers one error if etcd dies, for instance of a full or broken
// disk. It is not closed.
func (s *Server) Failed() <-chan error { return s.failure.errs }

// Close stops etcd, waits for it and gives the folder free. Clients should be
// closed before: etcd waits some seconds for those that are not.
func (s *Server) Close() error {
	// A dead etcd may hold its own locks for ever, so it is not waited for.
	if s.etcd != nil && !s.failure.happened() {
		s.stop()
	}
	return s.cleanup()
}

func (s *Server) stop() {
	s.failure.logging.Store(false)
	s.etcd.Close()
}

func (s *Server) cleanup() error {
	var errs []error
	if s.socketDir != "" {
		errs = append(errs, os.RemoveAll(s.socketDir))
	}
	return errors.Join(append(errs, s.dir.Close())...)
}

// makeSocketDir makes a folder that only this user can enter, with a path
// short enough for a unix socket in it: the data folder's may be too long.
func makeSocketDir() (string, error) {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dir, err := os.MkdirTemp(parent, "sandlot-")
		if err != nil {
			return "", fmt.Errorf("folder for sockets: %w", err)
		}
		if len(filepath.Join(dir, "client")) <= maxSocketPath {
			return dir, nil
		}
		if err := os.Remove(dir); err != nil {
			return "", fmt.Errorf("folder for sockets: %w", err)
		}
	}
	return "", fmt.Errorf("no temporary folder with a path short enough for a socket (TMPDIR is %s)", os.TempDir())
}
