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
func (s *session) proxy(w http.ResponseWriter, r *http.Request, locate func(context.Context) (string, error)) {
	b, err := s.reach(r.Method, passed(r), locate)
	if err != nil {
		answer(w, err)
		s.finish(err)
		return
	}
	client, err := s.hijack(w)
	if err != nil {
		answer(w, err)
		s.finish(err)
		return
	}
	if _, err = client.Write(b.head); err == nil {
		err = s.join(client, client, client, b)
	}
	s.finish(err)
}

// reach finds out where the runtime serves the session, and asks it there for the upgrade.
func (s *session) reach(
	method string, upgrade http.Header, locate func(context.Context) (string, error),
) (*backend, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.opts.Create)
	defer cancel()
	location, err := locate(ctx)
	if err != nil {
		return nil, err
	}
	b, err := s.dial(ctx, location, method, upgrade)
	if err != nil {
		return nil, err
	}
	if no := b.refused(); no != nil {
		return nil, no
	}
	return b, nil
}

// join copies both ways between a client and the runtime until the session is over. What is read from the client comes from
// in, and what is written to it goes to out.
func (s *session) join(client *conn, in io.Reader, out io.Writer, b *backend) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer s.closeConns() // which ends both copies
	gone, ended := make(chan struct{}), make(chan struct{})
	var endedBy error
	tasks.Go(func() {
		defer close(gone)
		_ = flow.Copy(b.conn, in)
		_ = b.conn.CloseWrite()
		// The rest of what the client sends is read, so that closing does not lose what it has not read.
		_, _ = io.Copy(io.Discard, onlyReader{in})
	})
	tasks.Go(func() {
		defer close(ended)
		endedBy = flow.Copy(out, b.conn)
	})
	select {
	case <-ended:
	case <-gone: // a client that has only closed one half gets what the runtime has to say
		t := time.NewTimer(endGrace)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
			return nil
		case <-s.ctx.Done():
			return s.why()
		}
	case <-s.ctx.Done():
		return s.why()
	}
	if endedBy != nil && !errors.Is(endedBy, io.EOF) {
		return nil // the client does not take it, or the runtime broke off: both sides see it
	}
	if f, ok := out.(interface{ finish() }); ok {
		f.finish()
	}
	client.linger(gone)
	return nil
}

// onlyReader hides the other methods from io.Copy.
type onlyReader struct{ io.Reader }
