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

// proxy passes an upgrade on to the runtime and, when that has agreed, every byte of both sides.
func (s *session) proxyUpgrade(w http.ResponseWriter, r *http.Request, locate func(context.Context) (string, error)) {
	b, err := s.openRuntime(r.Method, forwardedHeaders(r), locate)
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

// reach finds out where the runtime serves the session, and asks it there for the upgrade.
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

// join copies both ways between a client and the runtime until the session is over. What is read from the client comes from
// in, and what is written to it goes to out.
func (s *session) copyBoth(client *conn, in io.Reader, out io.Writer, b *runtimeConn) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer s.closeConns() // which ends both copies
	clientClosed, runtimeClosed := make(chan struct{}), make(chan struct{})
	var copyErr error
	tasks.Go(func() {
		defer close(clientClosed)
		_ = flow.Copy(b.conn, in)
		_ = b.conn.CloseWrite()
		// The rest of what the client sends is read, so that closing does not lose what it has not read.
		_, _ = io.Copy(io.Discard, onlyReader{in})
	})
	tasks.Go(func() {
		defer close(runtimeClosed)
		copyErr = flow.Copy(out, b.conn)
	})
	select {
	case <-runtimeClosed:
	case <-clientClosed: // a client that has only closed one half gets what the runtime has to say
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
		return nil // the client does not take it, or the runtime broke off: both sides see it
	}
	if f, ok := out.(interface{ closeWrite() }); ok {
		f.closeWrite()
	}
	client.closeGracefully(clientClosed)
	return nil
}

// onlyReader hides the other methods from io.Copy.
type onlyReader struct{ io.Reader }
