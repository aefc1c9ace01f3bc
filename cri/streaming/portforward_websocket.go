// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

// forwardWebSocket serves a client by WebSocket, which has two channels for each port: its data, and its errors.
func (s *session) forwardWebSocket(w http.ResponseWriter, r *http.Request, ports []int32) error {
	if len(ports) == 0 {
		no := &upgrade.Refusal{Code: http.StatusBadRequest, Text: `query parameter "port" is required`}
		answer(w, no)
		return no
	}
	protocol, no := upgrade.NegotiateWebSocket(r, []string{"", upgrade.ChannelV4, upgrade.Base64V4})
	if no != nil {
		answer(w, no)
		return no
	}
	c, frames, err := s.upgradeWebSocket(w, r, protocol)
	if c == nil {
		answer(w, err)
	}
	if err != nil {
		return err
	}
	ws := &webSocket{frames: frames, base64: protocol == upgrade.Base64V4, inputs: map[byte]*pipe.Pipe{}}
	ws.deliver = func(in *pipe.Pipe, b []byte) { s.deliver(in, b, len(ports) > 1) }
	channels := make([]*portChannel, len(ports))
	for i, port := range ports {
		in := pipe.New(4 * buffer)
		ws.inputs[byte(2*i)] = in
		channels[i] = &portChannel{ws: ws, in: in, data: ws.channel(byte(2 * i)), fault: ws.channel(byte(2*i + 1)), port: port}
	}
	return s.forwardChannels(c, ws, channels)
}

// deliver waits until a channel has space, unless others wait for that too long.
func (s *session) deliver(in *pipe.Pipe, b []byte, others bool) {
	limit := s.server.opts.Unread
	if !others {
		limit = 0
	}
	if _, err := in.WriteWithin(b, limit); err == pipe.ErrFull { //nolint:errorlint // it is returned bare
		in.Abort(fmt.Errorf("channel was reset: %w, and others wait", err))
	}
}

// forwardChannels runs the connections of all ports to their ends.
func (s *session) forwardChannels(c *conn, ws *webSocket, channels []*portChannel) error {
	gone := make(chan struct{})
	s.tasks.Go(func() {
		defer close(gone)
		defer ws.end()
		ws.receive()
		s.cancel(errClientGone)
	})
	var tasks sync.WaitGroup
	for _, one := range channels {
		number := binary.LittleEndian.AppendUint16(nil, uint16(one.port))
		for _, to := range []io.Writer{one.data, one.fault} {
			if _, err := to.Write(number); err != nil {
				s.cancel(errClientGone)
			}
		}
	}
	for _, one := range channels {
		tasks.Go(func() {
			if err := s.forwardPort(one.port, one); err != nil {
				_, _ = io.WriteString(one.fault, err.Error())
			}
			one.in.Abort(errOver)
		})
	}
	ended := make(chan struct{})
	go func() {
		tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-s.ctx.Done():
		for _, one := range channels {
			one.in.Abort(s.why())
		}
		waitFor(&tasks, late)
	}
	_ = ws.frames.WriteClose(websocket.Normal, "")
	c.linger(gone)
	return nil
}

// portChannel is the data of one port.
type portChannel struct {
	ws          *webSocket
	in          *pipe.Pipe
	data, fault io.Writer
	port        int32
}

// Read reads what the client has sent.
func (p *portChannel) Read(b []byte) (int, error) { return p.in.Read(b) }

// Write sends to the client.
func (p *portChannel) Write(b []byte) (int, error) { return p.data.Write(b) }

// Close drops what comes from the client.
func (p *portChannel) Close() error {
	p.in.Abort(io.ErrClosedPipe)
	return nil
}
