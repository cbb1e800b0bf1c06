// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/tracing"
)

// etcdProbeTimeout bounds the check at start that etcd is there.
const etcdProbeTimeout = 20 * time.Second

// errNotEtcd means that what answers at --etcd-servers is not an etcd.
var errNotEtcd = errors.New("the store does not take transactions over several keys, so it is not a real etcd (kine is not one)")

// newEtcdClient returns a client of its own for the transactions that bind
// claims: the generic store keeps its client to itself. Both are set up from
// the same transport configuration.
func newEtcdClient(config storagebackend.TransportConfig) (*clientv3.Client, error) {
	etcdConfig := clientv3.Config{
		Endpoints:            config.ServerList,
		DialTimeout:          etcdProbeTimeout,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		Logger:               zap.NewNop(), // its errors come back to us
		DialOptions: []grpc.DialOption{
			// As in the generic store's client: a span for each call, in the trace of
			// the request that it is made for.
			grpc.WithStatsHandler(otelgrpc.NewClientHandler(
				otelgrpc.WithMessageEvents(otelgrpc.ReceivedEvents, otelgrpc.SentEvents),
				otelgrpc.WithPropagators(tracing.Propagators()),
				otelgrpc.WithTracerProvider(config.TracerProvider),
			)),
		},
	}
	var err error
	if etcdConfig.TLS, err = etcdTLS(config); err != nil {
		return nil, err
	}
	client, err := clientv3.New(etcdConfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %v: %w", config.ServerList, err)
	}
	return client, nil
}

// etcdTLS returns nil where etcd is reached without TLS.
func etcdTLS(config storagebackend.TransportConfig) (*tls.Config, error) {
	if config.CertFile == "" && config.KeyFile == "" && config.TrustedCAFile == "" {
		return nil, nil
	}
	info := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
	made, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("TLS of etcd: %w", err)
	}
	return made, nil
}

// probeTransactions makes sure that the store can do what binding needs: compare
// two keys and act on both in one transaction. It writes nothing.
func probeTransactions(ctx context.Context, kv clientv3.KV, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, etcdProbeTimeout)
	defer cancel()
	a, b := prefix+"/sandlot-probe/a", prefix+"/sandlot-probe/b"
	_, err := kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(a), "=", 0), clientv3.Compare(clientv3.ModRevision(b), "=", 0)).
		Then(clientv3.OpGet(a), clientv3.OpGet(b)).
		Else(clientv3.OpGet(a, clientv3.WithKeysOnly()), clientv3.OpGet(b, clientv3.WithKeysOnly())).
		Commit()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return fmt.Errorf("%w: %w", errNotEtcd, err)
}
