// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// late is how long a runner may take to return once its context has ended.
const late = 10 * time.Second

// ServeExec runs a command in a container, as a request for exec asks that was authorized and whose container was found.
// It answers whatever comes of it, and returns when the session is over.
func (s *Server) ServeExec(w http.ResponseWriter, r *http.Request, containerID string, cmd []string, o cri.StreamOptions) {
	s.serveCommand(w, r, command{
		kind: Exec, target: s.target(containerID), options: o,
		url: func(ctx context.Context, o cri.StreamOptions) (string, error) {
			return s.opts.Streamer.Exec(ctx, containerID, cmd, o)
		},
		run: func(ctx context.Context, c cri.Session) status {
			code, err := s.opts.Runner.RunExec(ctx, containerID, cmd, c)
			if err != nil {
				return failed(fmt.Errorf("error executing command in container: %w", err))
			}
			return exited(cmd, code)
		},
	})
}

// ServeAttach attaches to a container, as ServeExec runs a command. The caller sets TTY as the container has it.
func (s *Server) ServeAttach(w http.ResponseWriter, r *http.Request, containerID string, o cri.StreamOptions) {
	s.serveCommand(w, r, command{
		kind: Attach, target: s.target(containerID), options: o,
		url: func(ctx context.Context, o cri.StreamOptions) (string, error) {
			return s.opts.Streamer.Attach(ctx, containerID, o)
		},
		run: func(ctx context.Context, c cri.Session) status {
			if err := s.opts.Runner.RunAttach(ctx, containerID, c); err != nil {
				return failed(fmt.Errorf("error attaching to container: %w", err))
			}
			return status{Status: success}
		},
	})
}

// command is an exec or attach.
type command struct {
	kind    Kind
	target  Target
	options cri.StreamOptions
	url     func(context.Context, cri.StreamOptions) (string, error)
	run     func(context.Context, cri.Session) status
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request, c command) {
	if no := upgrade.Check(r); no != nil {
		answer(w, no)
		return
	}
	c.options.Stderr = c.options.Stderr && !c.options.TTY
	session, err := s.begin(r.Context(), c.kind, c.target)
	if err != nil {
		answer(w, err)
		return
	}
	switch {
	case s.opts.Streamer == nil:
		session.command(w, r, c.options, c.run)
	case upgrade.IsClosable(r):
		s.count(c.kind)
		session.translate(w, r, c)
	default:
		session.proxy(w, r, func(ctx context.Context) (string, error) { return c.url(ctx, c.options) })
	}
}

// target returns what a session is with.
func (s *Server) target(id string) Target {
	t := Target{ID: id}
	if f := s.opts.PodOf; f != nil {
		t.PodUID = f(id)
	}
	return t
}

// count counts a request by WebSocket that the node translates or tunnels.
func (s *Server) count(k Kind) {
	if f := s.opts.Hooks.WebSocket; f != nil {
		f(k)
	}
}

// command runs a command for a client whose protocol is spoken here, to the end of both.
func (s *session) command(
	w http.ResponseWriter, r *http.Request, o cri.StreamOptions, run func(context.Context, cri.Session) status,
) {
	c, taken, err := s.open(w, r, o)
	if err != nil {
		if !taken {
			answer(w, err)
		}
		s.finish(err)
		return
	}
	done := make(chan status, 1)
	go func() { done <- run(s.ctx, c.Session) }()
	how, returned := s.await(c, done)
	if why := s.why(); errors.Is(why, errClientGone) {
		c.close(nil)
	} else {
		c.close(&how)
	}
	if !returned {
		s.server.opts.Logger.Warn("runtime has not ended a session", "kind", string(s.Kind), "target", s.Target.ID)
		go func() { // the session counts until it has
			<-done
			s.finish(how.err())
		}()
		return
	}
	s.finish(how.err())
}

// await waits for the end of a command. Once its session has to end, it does not wait for long.
func (s *session) await(c *client, done <-chan status) (how status, returned bool) {
	select {
	case how = <-done:
		return how, true
	case <-c.gone:
		s.cancel(errClientGone)
	case <-s.ctx.Done():
	}
	c.abort()
	t := time.NewTimer(late)
	defer t.Stop()
	select {
	case how = <-done:
		if how.Status == success || how.Reason == "NonZeroExitCode" {
			return how, true // it ended just now
		}
		return failed(s.why()), true
	case <-t.C:
		return failed(s.why()), false
	}
}

// why returns why the session has to end, or nil.
func (s *session) why() error { return context.Cause(s.ctx) }
