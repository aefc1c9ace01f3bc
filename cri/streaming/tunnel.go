// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

// tunnelConn reads and writes a byte stream that is carried in WebSocket messages of any length.
type tunnelConn struct{ frames *websocket.Conn }

// Read reads from the current message, or from the next one.
func (t tunnelConn) Read(b []byte) (int, error) {
	for {
		n, err := t.frames.Read(b)
		if n > 0 || err == nil {
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := t.frames.NextMessage(); err != nil {
			if errors.Is(err, io.EOF) {
				return 0, io.EOF
			}
			return 0, err
		}
	}
}

// Write sends b in one or more messages.
func (t tunnelConn) Write(b []byte) (int, error) { return t.frames.WriteBinary(nil, b) }

// closeWrite sends a close frame: no more data follows.
func (t tunnelConn) closeWrite() { _ = t.frames.WriteClose(websocket.Normal, "") }

// upgradeTunnel upgrades a request to a WebSocket whose messages contain SPDY frames of the inner protocol.
func (s *session) upgradeTunnel(w http.ResponseWriter, r *http.Request, inner string) (*conn, tunnelConn, error) {
	protocol, refusal := upgrade.NegotiateWebSocket(r, []string{upgrade.SPDY31 + "+" + inner})
	if refusal != nil {
		writeRefusal(w, refusal)
		return nil, tunnelConn{}, refusal
	}
	c, ws, err := s.upgradeWebSocket(w, r, protocol)
	if c == nil {
		writeRefusal(w, err)
	}
	return c, tunnelConn{ws}, err
}

// serveTunnelSession runs a session whose client sends SPDY inside a WebSocket, while the runtime uses plain SPDY. locate returns
// the session URL of the runtime.
func (s *session) serveTunnelSession(w http.ResponseWriter, r *http.Request, locate func(context.Context) (string, error)) {
	s.finishSession(s.serveTunnel(w, r, locate))
}

func (s *session) serveTunnel(w http.ResponseWriter, r *http.Request, locate func(context.Context) (string, error)) error {
	headers := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgrade.SPDY31}, upgrade.HeaderProtocol: upgrade.TunnelledProtocols(r)}
	b, err := s.openRuntime(http.MethodPost, headers, locate)
	if err == nil && !strings.Contains(strings.ToUpper(b.response.Header.Get("Upgrade")), upgrade.SPDY31) {
		err = errors.New("unable to upgrade: missing upgrade headers in response")
	}
	if err != nil {
		writeRefusal(w, err)
		return err
	}
	client, carried, err := s.upgradeTunnel(w, r, strings.TrimSpace(b.response.Header.Get(upgrade.HeaderProtocol)))
	if err != nil {
		return err
	}
	return s.copyBoth(client, carried, carried, b)
}
