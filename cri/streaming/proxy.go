// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/streaming/flow"
)

// proxyUpgrade sends the client's upgrade request to the session URL of the runtime, and copies bytes between both until the
// session ends.
func (s *session) proxyUpgrade(w http.ResponseWriter, r *http.Request, sessionURL func(context.Context) (string, error)) {
	b, err := s.openRuntime(r.Method, forwardedHeaders(r), sessionURL)
	if err != nil {
		writeRefusal(w, err)
		s.finishSession(err)
		return
	}
	client, err := s.hijackConn(w)
	if err != nil {
		writeRefusal(w, err)
		s.finishSession(err)
		return
	}
	if _, err = client.Write(b.head); err == nil {
		err = s.copyBoth(client, client, client, b)
	}
	s.finishSession(err)
}

// openRuntime sends an upgrade request with the headers upgrade to the session URL that locate returns. If the runtime
// refuses the upgrade, the error is an *upgrade.Refusal.
func (s *session) openRuntime(
	method string, upgrade http.Header, locate func(context.Context) (string, error),
) (*runtimeConn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.opts.CreationTimeout)
	defer cancel()
	location, err := locate(ctx)
	if err != nil {
		return nil, err
	}
	b, err := s.dialRuntime(ctx, location, method, upgrade)
	if err != nil {
		return nil, err
	}
	if refusal := b.readRefusal(); refusal != nil {
		return nil, refusal
	}
	return b, nil
}

// copyBoth copies bytes between the client, read from reader and written to writer, and the runtime until the session ends.
func (s *session) copyBoth(client *conn, reader io.Reader, writer io.Writer, runtime *runtimeConn) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer s.closeConns() // this ends both copies
	clientClosed, runtimeClosed := make(chan struct{}), make(chan struct{})
	var copyErr error
	tasks.Go(func() {
		defer close(clientClosed)
		_ = flow.Copy(runtime.conn, reader)
		_ = runtime.conn.CloseWrite()
		// Read the remaining input, so that closing the connection does not discard unread output.
		_, _ = io.Copy(io.Discard, onlyReader{reader})
	})
	tasks.Go(func() {
		defer close(runtimeClosed)
		copyErr = flow.Copy(writer, runtime.conn)
	})
	select {
	case <-runtimeClosed:
	case <-clientClosed: // a client that closed only its write side gets the remaining output
		t := time.NewTimer(exitGrace)
		defer t.Stop()
		select {
		case <-runtimeClosed:
		case <-t.C:
			return nil
		case <-s.ctx.Done():
			return s.endReason()
		}
	case <-s.ctx.Done():
		return s.endReason()
	}
	if copyErr != nil && !errors.Is(copyErr, io.EOF) {
		return nil // the client or the runtime has disconnected: both notice it
	}
	if f, ok := writer.(interface{ closeWrite() }); ok {
		f.closeWrite()
	}
	client.closeGracefully(clientClosed)
	return nil
}

// onlyReader hides all methods except Read, so that io.Copy does not use them.
type onlyReader struct{ io.Reader }
