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

// runnerTimeout is how long a session waits for a call of a Runner to return, after the context of the call has ended.
const runnerTimeout = 10 * time.Second

// ServeExec runs a command in a container, and connects its streams with the HTTP client. The caller has authorized the
// request and checked that the container exists. It blocks until the session has ended, and sends all errors to the client.
func (s *Server) ServeExec(w http.ResponseWriter, r *http.Request, containerID string, cmd []string, opts cri.StreamOptions) {
	s.serveCommand(w, r, command{
		kind: Exec, target: s.newTarget(containerID), options: opts,
		url: func(ctx context.Context, o cri.StreamOptions) (string, error) {
			return s.opts.Streamer.Exec(ctx, containerID, cmd, o)
		},
		run: func(ctx context.Context, c cri.Session) status {
			code, err := s.opts.Runner.RunExec(ctx, containerID, cmd, c)
			if err != nil {
				return errorStatus(fmt.Errorf("error executing command in container: %w", err))
			}
			return exitStatus(cmd, code)
		},
	})
}

// ServeAttach connects the HTTP client with the streams of a container's main process; opts.TTY must be as in the
// container. The caller has authorized the request and checked that the container exists. It blocks until the session has
// ended, and sends all errors to the client.
func (s *Server) ServeAttach(w http.ResponseWriter, r *http.Request, containerID string, opts cri.StreamOptions) {
	s.serveCommand(w, r, command{
		kind: Attach, target: s.newTarget(containerID), options: opts,
		url: func(ctx context.Context, o cri.StreamOptions) (string, error) {
			return s.opts.Streamer.Attach(ctx, containerID, o)
		},
		run: func(ctx context.Context, c cri.Session) status {
			if err := s.opts.Runner.RunAttach(ctx, containerID, c); err != nil {
				return errorStatus(fmt.Errorf("error attaching to container: %w", err))
			}
			return status{Status: success}
		},
	})
}

// command describes an exec or attach session. A session uses the function url with a Streamer, and the function run with a
// Runner.
type command struct {
	kind    Kind
	target  Target
	options cri.StreamOptions
	url     func(context.Context, cri.StreamOptions) (string, error)
	run     func(context.Context, cri.Session) status
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request, cmd command) {
	if refusal := upgrade.Check(r); refusal != nil {
		writeRefusal(w, refusal)
		return
	}
	cmd.options.Stderr = cmd.options.Stderr && !cmd.options.TTY
	session, err := s.startSession(r.Context(), cmd.kind, cmd.target)
	if err != nil {
		writeRefusal(w, err)
		return
	}
	switch {
	case s.opts.Streamer == nil:
		session.runCommand(w, r, cmd.options, cmd.run)
	case upgrade.IsClosable(r):
		s.reportWebSocket(cmd.kind)
		session.translateToSPDY(w, r, cmd)
	default:
		session.proxyUpgrade(w, r, func(ctx context.Context) (string, error) { return cmd.url(ctx, cmd.options) })
	}
}

// newTarget returns the target of a session. id is a container or sandbox ID, for which Options.PodOf returns the UID of
// the pod.
func (s *Server) newTarget(id string) Target {
	t := Target{ID: id}
	if f := s.opts.PodOf; f != nil {
		t.PodUID = f(id)
	}
	return t
}

// reportWebSocket calls Hooks.WebSocket if it is set.
func (s *Server) reportWebSocket(kind Kind) {
	if f := s.opts.Hooks.WebSocket; f != nil {
		f(kind)
	}
}

// runCommand connects a new client, calls run with its streams, sends it the status, and returns after the client has
// disconnected.
func (s *session) runCommand(
	w http.ResponseWriter, r *http.Request, opts cri.StreamOptions, run func(context.Context, cri.Session) status,
) {
	c, taken, err := s.openClient(w, r, opts)
	if err != nil {
		if !taken {
			writeRefusal(w, err)
		}
		s.finishSession(err)
		return
	}
	done := make(chan status, 1)
	go func() { done <- run(s.ctx, c.Session) }()
	result, returned := s.awaitCommand(c, done)
	if why := s.endReason(); errors.Is(why, errClientGone) {
		c.closeWithStatus(nil)
	} else {
		c.closeWithStatus(&result)
	}
	if !returned {
		s.server.opts.Logger.Warn("runtime call has not returned after the end of its session", "kind", string(s.Kind), "target", s.Target.ID)
		go func() { // the session counts until the call returns
			<-done
			s.finishSession(result.hookError())
		}()
		return
	}
	s.finishSession(result.hookError())
}

// awaitCommand waits for the status of a command. returned is false if the command still runs after the session was
// canceled.
func (s *session) awaitCommand(client *client, done <-chan status) (result status, returned bool) {
	select {
	case result = <-done:
		return result, true
	case <-client.closed:
		s.cancel(errClientGone)
	case <-s.ctx.Done():
	}
	client.abortInputs()
	// the command may end because its input has ended
	t := time.NewTimer(runnerTimeout)
	defer t.Stop()
	select {
	case result = <-done:
		if result.Status == success || result.Reason == "NonZeroExitCode" {
			return result, true // the command ended at this moment
		}
		return errorStatus(s.endReason()), true
	case <-t.C:
		return errorStatus(s.endReason()), false
	}
}

// endReason returns the reason for which the session was canceled. It returns nil if the session was not canceled.
func (s *session) endReason() error { return context.Cause(s.ctx) }
