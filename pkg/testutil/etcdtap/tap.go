// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// Verdict is what becomes of a transaction.
type Verdict int

const (
	// Pass lets the transaction through.
	Pass Verdict = iota
	// HoldBefore keeps it from etcd.
	HoldBefore
	// HoldAfter keeps the answer from the server. Etcd has it, and has answered.
	HoldAfter
)

// Txn is a transaction on its way to etcd.
type Txn struct {
	// Puts are the values that it writes if its conditions hold, by their keys.
	Puts map[string]string
}

// Tap is a gRPC proxy of an etcd.
type Tap struct {
	// URL is where it listens.
	URL string

	etcd   *grpc.ClientConn
	decide func(Txn) Verdict
	held   func(Txn)
	closed chan struct{}
}

// Start runs a tap of an etcd until the test ends. decide is asked about every
// transaction, by many goroutines, and held is called when one is held, and with
// HoldAfter when etcd has answered.
//
// What is held stays so for as long as the server waits for it. It may give up and try
// again, and then decide is asked again.
func Start(t testing.TB, etcd string, decide func(Txn) Verdict, held func(Txn)) *Tap {
	t.Helper()
	tap := &Tap{decide: decide, held: held, closed: make(chan struct{})}
	var err error
	tap.etcd, err = grpc.NewClient(etcd, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatalf("etcdtap: %v", err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("etcdtap: %v", err)
	}
	tap.URL = "http://" + listener.Addr().String()
	server := grpc.NewServer(grpc.UnknownServiceHandler(tap.handle), grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(math.MaxInt32))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() {
		close(tap.closed)
		server.Stop()
		serving.Wait()
		_ = tap.etcd.Close()
	})
	return tap
}

// handle is one call of any method.
func (t *Tap) handle(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return errors.New("etcdtap: a call without a method")
	}
	ctx := down.Context()
	if sent, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, sent)
	}
	if method == pb.KV_Txn_FullMethodName {
		return t.transaction(ctx, down)
	}
	// Otherwise, the stream to etcd would live on.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := t.etcd.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message []byte
			if err := down.RecvMsg(&message); err != nil {
				if errors.Is(err, io.EOF) {
					_ = up.CloseSend()
				} else {
					cancel()
				}
				return
			}
			if up.SendMsg(message) != nil {
				return // the other direction has the error
			}
		}
	}()
	for {
		var message []byte
		if err := up.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := down.SendMsg(message); err != nil {
			return err
		}
	}
}

// transaction is a call that the test decides about.
func (t *Tap) transaction(ctx context.Context, down grpc.ServerStream) error {
	var request, response []byte
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	txn, err := parse(request)
	if err != nil {
		return err
	}
	verdict := t.decide(txn)
	if verdict == HoldBefore {
		t.held(txn)
		return t.halt(ctx)
	}
	if verdict == HoldAfter {
		ctx = context.WithoutCancel(ctx) // the server may be dead already
	}
	if err := t.etcd.Invoke(ctx, pb.KV_Txn_FullMethodName, request, &response); err != nil {
		return err
	}
	if verdict == HoldAfter {
		t.held(txn)
		return t.halt(down.Context())
	}
	return down.SendMsg(response)
}

// halt waits until the server has given up, or is gone.
func (t *Tap) halt(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.closed:
		return errors.New("etcdtap: the test is over")
	}
}

func parse(message []byte) (Txn, error) {
	request := &pb.TxnRequest{}
	if err := decode(message, request); err != nil {
		return Txn{}, fmt.Errorf("etcdtap: reading a transaction: %w", err)
	}
	txn := Txn{Puts: map[string]string{}}
	for _, op := range request.GetSuccess() {
		if put := op.GetRequestPut(); put != nil {
			txn.Puts[string(put.GetKey())] = string(put.GetValue())
		}
	}
	return txn, nil
}
