// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/flow"
	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// pingPeriod is the period of SPDY pings to the runtime. Without them, the idle timeout of the runtime could end the session. The
// Server has its own idle timeout.
const pingPeriod = time.Minute

// maxStatus limits the number of bytes of the status that the runtime sends.
const maxStatus = 64 << 10

// translateToSPDY runs a session whose client uses version 5 of the WebSocket protocol, while the runtime uses SPDY.
func (s *session) translateToSPDY(w http.ResponseWriter, r *http.Request, cmd command) {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.opts.CreationTimeout)
	location, err := cmd.url(ctx, cmd.options)
	cancel()
	if err != nil {
		writeRefusal(w, err)
		s.finishSession(err)
		return
	}
	s.runCommand(w, r, cmd.options, func(ctx context.Context, streams cri.Session) status {
		result, err := s.runOnRuntime(ctx, location, streams)
		if err != nil {
			return errorStatus(err)
		}
		return result
	})
}

// runOnRuntime connects the client's streams to the session URL of the runtime over SPDY, and returns the runtime's status.
func (s *session) runOnRuntime(ctx context.Context, location string, streams cri.Session) (status, error) {
	headers := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgrade.SPDY31}, upgrade.HeaderProtocol: {upgrade.ChannelV4}}
	b, err := s.openRuntime(http.MethodPost, headers, func(context.Context) (string, error) { return location, nil })
	if err != nil {
		return status{}, fmt.Errorf("unable to upgrade connection: %w", err)
	}
	mux, err := spdy.New(b.conn.newReader(), b.conn, spdy.Options{IsClient: true, Buffer: streamBuffer})
	if err != nil {
		return status{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = b.conn.Close() })
	defer stop()
	defer b.conn.Close()
	defer mux.Abort()
	s.tasks.Go(func() { _ = mux.Serve() })
	over := make(chan struct{})
	defer close(over)
	s.tasks.Go(func() { sendPings(mux, over) })
	opened, err := openStreams(mux, streams)
	if err != nil {
		return status{}, err
	}
	return s.copyStreams(ctx, mux, b, opened, streams)
}

// sendPings sends periodic SPDY pings to the runtime. It returns when the channel over is closed.
func sendPings(mux *spdy.Conn, over <-chan struct{}) {
	t := time.NewTicker(pingPeriod)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = mux.Ping() // other calls return the same error
		case <-over:
			return
		}
	}
}

// openStreams opens a SPDY stream to the runtime for each stream of the session, and returns them by stream type.
func openStreams(mux *spdy.Conn, streams cri.Session) (map[string]*spdy.Stream, error) {
	opened := map[string]*spdy.Stream{}
	for _, one := range []struct {
		kind   string
		wanted bool
	}{
		{typeError, true},
		{typeStdin, streams.Stdin != nil},
		{typeStdout, streams.Stdout != nil},
		{typeStderr, streams.Stderr != nil},
		{typeSize, streams.TTY},
	} {
		if !one.wanted {
			continue
		}
		stream, err := mux.Open(http.Header{streamType: {one.kind}})
		if err != nil {
			return nil, fmt.Errorf("opening stream %s: %w", one.kind, err)
		}
		opened[one.kind] = stream
	}
	return opened, nil
}

// awaitAccepted waits until the runtime has accepted all streams in opened. It returns an error if the runtime refuses a
// stream, or after the timeout.
func awaitAccepted(ctx context.Context, opened map[string]*spdy.Stream, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("timed out waiting for the runtime to accept streams"))
	defer cancel()
	for kind, stream := range opened {
		if err := stream.AwaitReply(ctx); err != nil {
			return fmt.Errorf("opening stream %s: %w", kind, err)
		}
	}
	return nil
}

// copyStreams copies between the streams of client and runtime, and returns the status that the runtime sends at the end.
func (s *session) copyStreams(
	ctx context.Context, mux *spdy.Conn, runtime *runtimeConn, opened map[string]*spdy.Stream, streams cri.Session,
) (status, error) {
	if in := opened[typeStdin]; in != nil {
		s.tasks.Go(func() { // ends with the client's stream, after the session
			if _, err := io.Copy(in, onlyReader{streams.Stdin}); err == nil {
				_ = in.CloseWrite()
			}
		})
	}
	if size := opened[typeSize]; size != nil {
		s.tasks.Go(func() {
			encoder := json.NewEncoder(size)
			for one := range streams.Resize {
				_ = encoder.Encode(one)
			}
		})
	}
	var outputs sync.WaitGroup // copied even before the runtime has accepted all streams
	for kind, to := range map[string]io.Writer{typeStdout: streams.Stdout, typeStderr: streams.Stderr} {
		if from := opened[kind]; from != nil {
			outputs.Go(func() {
				if err := flow.Copy(to, from); err != nil { // the client has disconnected
					from.Input().Abort(err) // otherwise unread output blocks the reader of the connection
					_ = runtime.conn.Close()
				}
			})
		}
	}
	var text []byte
	err := awaitAccepted(ctx, opened, s.server.opts.CreationTimeout)
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(opened[typeError], maxStatus))
	} else {
		mux.Abort()
	}
	outputs.Wait()
	switch {
	case err != nil:
		return status{}, err
	case len(text) == 0:
		return status{}, errors.New("the runtime has closed the session without a status")
	}
	return parseStatus(text)
}
