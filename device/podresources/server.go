// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/privatesocket"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/internal/tokenbucket"
)

// Defaults of [Options]. Rate and burst are those of the kubelet. Source: pkg/kubelet/apis/podresources/constants.go.
const (
	defaultRate        = 100
	defaultBurst       = 10
	defaultConnections = 100
	defaultTimeout     = 10 * time.Second
)

// Limits for clients.
const (
	maxSocketPath  = 100 // bytes; a socket address has at most 107
	maxRequest     = 16 << 10
	maxResponse    = 16 << 20        // as in the kubelet's client
	maxUnsent      = 2 * maxResponse // responses of all connections that clients have not received
	maxHeaders     = 16 << 10
	maxStreams     = 100 // concurrent requests of a connection
	maxRunning     = 8   // concurrent requests of all connections; further requests wait
	connectTimeout = 10 * time.Second
	idleTimeout    = 10 * time.Minute // of a connection without requests
	pingInterval   = time.Minute      // for a client that sends nothing during a request
	pingTimeout    = 20 * time.Second
	stopTimeout    = 5 * time.Second // for requests in progress when the server stops
	warnPeriod     = time.Minute     // least time between two logged warnings about connections
)

// retryPolicy is the back-off after the listener has failed.
var retryPolicy = backoff.Policy{First: 250 * time.Millisecond, Max: 30 * time.Second} //nolint:gochecknoglobals // only read

// Options configures a [Server]. Socket is required; all other fields have useful zero values.
type Options struct {
	Socket  string  // clean absolute path of at most 100 bytes, such as /var/lib/kubelet/pod-resources/kubelet.sock
	Pods    Pods    // nil: no pods
	Devices Devices // nil: no devices, and all active pods are listed
	CPUs    CPUs    // nil: no exclusive CPUs, as under the kubelet's CPU manager policy none
	Memory  Memory  // nil: no reserved memory, as under the kubelet's memory manager policy None
	Claims  Claims  // nil: no claims

	// ListUnreserved lists active pods also while their devices are not reserved, as the kubelet does. False omits them.
	ListUnreserved bool

	Rate           int           // requests per second of all clients; zero means 100, a negative number no limit
	Burst          int           // requests at once above Rate; zero means 10
	MaxConnections int           // open connections; zero means 100. Above it, the longest idle connection is closed
	Timeout        time.Duration // of a request, and of a client that reads nothing; zero means 10 s

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Hooks are called by a [Server]. Each hook may be nil, is called from several goroutines, and must not block.
//
// version is "v1" or "v1alpha1"; method is "List", "Get" or "GetAllocatableResources". The kubelet counts List of v1alpha1
// only in kubelet_pod_resources_endpoint_requests_total.
type Hooks struct {
	// SocketCreated is called with the temporary path of a new socket, before the server renames the socket to path, which is Options.Socket.
	SocketCreated func(temporary, path string)
	// RequestReceived is called for each request that passed the rate limit.
	RequestReceived func(version, method string)
	// RequestFailed is called for each such request that returns an error, such as Get of an unknown pod.
	RequestFailed func(version, method string)
	// RequestRejected is called for each request above the rate limit. The kubelet does not count these requests.
	RequestRejected func(version, method string)
}

// Server serves the podresources API on a unix socket. Create it with [New].
type Server struct {
	opts    Options
	limit   *tokenbucket.Bucket // nil: no limit
	conns   connSet
	running runningCalls
	once    runonce.Guard
	listen  func(path string) (net.Listener, error) // replaced in tests
}

// New returns a server. It does not open the socket. It returns an error if the path of the socket cannot be used, or if Burst,
// MaxConnections or Timeout is negative.
func New(opts Options) (*Server, error) {
	switch {
	case !filepath.IsAbs(opts.Socket) || filepath.Clean(opts.Socket) != opts.Socket || strings.ContainsRune(opts.Socket, 0):
		return nil, fmt.Errorf("podresources.New: Options.Socket %q: must be a clean absolute path", opts.Socket)
	case len(opts.Socket) > maxSocketPath:
		return nil, fmt.Errorf("podresources.New: Options.Socket %q: must have at most %d bytes", opts.Socket, maxSocketPath)
	case opts.Burst < 0:
		return nil, fmt.Errorf("podresources.New: Options.Burst %d: must not be negative", opts.Burst)
	case opts.MaxConnections < 0:
		return nil, fmt.Errorf("podresources.New: Options.MaxConnections %d: must not be negative", opts.MaxConnections)
	case opts.Timeout < 0:
		return nil, fmt.Errorf("podresources.New: Options.Timeout %s: must not be negative", opts.Timeout)
	}
	opts.Rate = cmp.Or(opts.Rate, defaultRate)
	opts.Burst = cmp.Or(opts.Burst, defaultBurst)
	opts.MaxConnections = cmp.Or(opts.MaxConnections, defaultConnections)
	opts.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	s := &Server{
		opts: opts, running: newRunningCalls(maxRunning), listen: opts.openSocket,
		conns: connSet{limit: opts.MaxConnections, maxUnsent: maxUnsent, writeTimeout: opts.Timeout},
	}
	if opts.Rate > 0 {
		s.limit = tokenbucket.New(opts.Rate, opts.Burst)
	}
	s.once.Require("podresources.Server", opts.Logger, nil)
	return s, nil
}

// Run serves requests until ctx ends. Then it waits at most 5 s for requests in progress, closes all connections, removes the
// socket and returns nil. If the socket cannot be opened, or fails later, Run logs the error and retries with a back-off of
// up to 30 s. Open connections continue meanwhile. A second call returns an error.
func (s *Server) Run(ctx context.Context) error {
	if err := s.once.Begin(); err != nil {
		return fmt.Errorf("serve pod resources on %s: %w", s.opts.Socket, err)
	}
	defer s.once.End()
	g := s.newServer()
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		stopServer(g)
	})
	s.serveWithRetries(ctx, g)
	wg.Wait()
	s.running.awaitReturns()
	return nil
}

// newServer returns a gRPC server with the services v1 and v1alpha1.
func (s *Server) newServer() *grpc.Server {
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxResponse),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingInterval, Timeout: pingTimeout}),
		grpc.InTapHandle(s.limitTime),
		grpc.UnaryInterceptor(s.interceptRequest),
		grpc.WaitForHandlers(true),
	)
	podresourcesv1.RegisterPodResourcesListerServer(g, serviceV1{server: s})
	v1alpha1.RegisterPodResourcesListerServer(g, serviceV1alpha1{server: s})
	return g
}

// serveWithRetries opens the socket and serves it until ctx ends, and again with a back-off after each error.
func (s *Server) serveWithRetries(ctx context.Context, g *grpc.Server) {
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		err := s.serveSocket(g)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > retryPolicy.Max {
			failures = 0
		}
		failures++
		wait := retryPolicy.After(failures)
		s.opts.Logger.Error("podresources API is not served", "socket", s.opts.Socket, "error", err, "retryIn", wait)
		_ = sleep.For(ctx, wait) // ends early only with ctx
	}
}

// serveSocket opens the socket and serves it until the listener fails or g is stopped.
func (s *Server) serveSocket(g *grpc.Server) error {
	l, err := s.listen(s.opts.Socket)
	if err != nil {
		return fmt.Errorf("listen on socket %s: %w", s.opts.Socket, err)
	}
	s.opts.Logger.Info("serving the podresources API", "socket", s.opts.Socket)
	if err := g.Serve(newLimitedListener(l, &s.conns, s.opts.Logger)); err != nil {
		return fmt.Errorf("serve socket %s: %w", s.opts.Socket, err)
	}
	return errors.New("gRPC server stopped")
}

// openSocket opens the socket at path. It calls Hooks.SocketCreated.
func (o Options) openSocket(path string) (net.Listener, error) {
	return privatesocket.ListenAfter(path, func(temporary string) {
		if hook := o.Hooks.SocketCreated; hook != nil {
			hook(temporary, path)
		}
	})
}

// stopServer waits until all requests have returned and stops g. After stopTimeout it stops g without waiting.
func stopServer(g *grpc.Server) {
	var wg sync.WaitGroup
	wg.Go(g.GracefulStop)
	timer := time.AfterFunc(stopTimeout, g.Stop)
	wg.Wait()
	timer.Stop()
}
