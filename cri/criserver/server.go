// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
)

// Options configures a [Server]. The zero value is ready for production.
type Options struct {
	Images      cri.Images   // nil: the runtime itself, if it implements cri.Images
	Puller      cri.Puller   // nil: the runtime itself, if it implements cri.Puller
	Streamer    cri.Streamer // nil: the runtime itself, if it implements cri.Streamer; see package streaming
	EventBuffer int          // size of the event buffer per client; zero: 256
}

// Server serves one runtime over the CRI.
type Server struct {
	runtime     cri.Runtime
	images      cri.Images
	puller      cri.Puller
	eventBuffer int
	checksState bool // check the state of the container or sandbox before calling streamer
	idCache     idCache

	// The fields below are the runtime itself, or nil if it lacks the capability.
	inspector    cri.Inspector
	events       cri.EventStreamer
	execer       cri.Execer
	streamer     cri.Streamer // or Options.Streamer
	logs         cri.LogReopener
	updater      cri.Updater
	stats        cri.StatsLister
	podStats     cri.PodStatsLister
	metrics      cri.MetricsLister
	reporter     cri.StatusReporter
	cidrs        cri.PodCIDRSetter
	checkpointer cri.Checkpointer
}

const (
	maxMessageSize     = 16 << 20 // of a request; the kubelet accepts responses of this size
	defaultEventBuffer = 256
)

// New returns a server that passes CRI calls to the runtime rt. It panics if rt is nil.
func New(rt cri.Runtime, opts Options) *Server {
	required.MustArgs("criserver.New", required.Arg{Name: "rt", Value: rt, Hint: "a *process.Runtime"})
	s := &Server{
		runtime:     rt,
		images:      opts.Images,
		puller:      opts.Puller,
		eventBuffer: cmp.Or(max(opts.EventBuffer, 0), defaultEventBuffer),
	}
	if s.images == nil {
		s.images, _ = rt.(cri.Images)
	}
	if s.puller == nil {
		s.puller, _ = rt.(cri.Puller)
	}
	s.inspector, _ = rt.(cri.Inspector)
	s.events, _ = rt.(cri.EventStreamer)
	if s.execer, _ = rt.(cri.Execer); s.execer == nil {
		if runner, ok := rt.(cri.SessionRunner); ok {
			s.execer = sessionExecer{runner}
		}
	}
	s.streamer, _ = rt.(cri.Streamer)
	if opts.Streamer != nil {
		s.streamer, s.checksState = opts.Streamer, true
	}
	s.logs, _ = rt.(cri.LogReopener)
	s.updater, _ = rt.(cri.Updater)
	s.stats, _ = rt.(cri.StatsLister)
	s.podStats, _ = rt.(cri.PodStatsLister)
	s.metrics, _ = rt.(cri.MetricsLister)
	s.reporter, _ = rt.(cri.StatusReporter)
	s.cidrs, _ = rt.(cri.PodCIDRSetter)
	s.checkpointer, _ = rt.(cri.Checkpointer)
	return s
}

// Serve serves CRI calls on listener until ctx ends. Then it cancels the calls in progress, waits until they return, and
// returns nil. It always closes listener. Serve may be called several times, with different listeners.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageSize),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(encodeUnaryError, s.expandPrefixes),
		grpc.StreamInterceptor(encodeStreamError),
	)
	v1.RegisterRuntimeServiceServer(g, &runtimeService{server: s})
	v1.RegisterImageServiceServer(g, &imageService{server: s})

	done, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-done.Done()
		g.Stop()
	})
	err := g.Serve(listener)
	stop()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve CRI on %s: %w", listener.Addr(), err)
}

// runtimeService implements the CRI's RuntimeService.
type runtimeService struct {
	v1.UnimplementedRuntimeServiceServer
	server *Server
}

// imageService implements the CRI's ImageService.
type imageService struct {
	v1.UnimplementedImageServiceServer
	server *Server
}
