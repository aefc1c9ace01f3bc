// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// Proxy is a gRPC proxy between an agent and the runtime. It forwards every call unchanged and records its duration. It does
// not decode messages: a CRI call has one request, and one response or a stream of responses.
type Proxy struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	trace  *Trace
	done   chan struct{} // closed when the server has stopped
}

// maxMessage is the maximum size of a message in bytes, as in the kubelet.
const maxMessage = 16 << 20

// StartProxy listens at a socket and connects to the endpoint.
func StartProxy(socket, endpoint string, t *Trace) (*Proxy, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("connect to runtime %s: %w", endpoint, err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for calls to trace: %w", err), conn.Close())
	}
	p := &Proxy{conn: conn, trace: t, done: make(chan struct{})}
	p.server = grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(p.forward),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	go func() { // exits at Close
		defer close(p.done)
		_ = p.server.Serve(listener) // returns an error when the server is stopped
	}()
	return p, nil
}

// Close cancels all calls in flight.
func (p *Proxy) Close() error {
	p.server.Stop()
	<-p.done
	return p.conn.Close()
}

// forward forwards one call.
func (p *Proxy) forward(_ any, agent grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(agent)
	defer p.trace.Begin(path.Base(method))()
	ctx := agent.Context()
	if sent, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, sent)
	}
	var message []byte
	if err := agent.RecvMsg(&message); err != nil {
		return err
	}
	runtime, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(runtime.SendMsg(&message), runtime.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if err := runtime.RecvMsg(&message); err != nil {
			agent.SetTrailer(runtime.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err // err contains the status of the runtime
		}
		if err := agent.SendMsg(&message); err != nil {
			return err
		}
	}
}

// rawCodec passes messages without decoding them.
type rawCodec struct{}

// Marshal returns the bytes that v points to.
func (rawCodec) Marshal(v any) ([]byte, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not bytes", v)
	}
	return *message, nil
}

// Unmarshal makes v point to a copy of data.
func (rawCodec) Unmarshal(data []byte, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal %T: not bytes", v)
	}
	*message = append([]byte(nil), data...)
	return nil
}

// Name returns the content subtype of the calls, that of protocol buffers.
func (rawCodec) Name() string { return "proto" }
