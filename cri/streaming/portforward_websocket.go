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

// forwardWebSocket serves a port-forward session over a WebSocket. Each port has two channels: one for data and one for errors.
func (s *session) forwardWebSocket(w http.ResponseWriter, r *http.Request, ports []int32) error {
	if len(ports) == 0 {
		refusal := &upgrade.Refusal{Code: http.StatusBadRequest, Text: `query parameter "port" is required`}
		writeRefusal(w, refusal)
		return refusal
	}
	protocol, refusal := upgrade.NegotiateWebSocket(r, []string{"", upgrade.ChannelV4, upgrade.Base64V4})
	if refusal != nil {
		writeRefusal(w, refusal)
		return refusal
	}
	c, frames, err := s.upgradeWebSocket(w, r, protocol)
	if c == nil {
		writeRefusal(w, err)
	}
	if err != nil {
		return err
	}
	ws := &webSocket{frames: frames, base64: protocol == upgrade.Base64V4, inputs: map[byte]*pipe.Pipe{}}
	ws.writeInput = func(in *pipe.Pipe, b []byte) { s.writeChannel(in, b, len(ports) > 1) }
	channels := make([]*portChannel, len(ports))
	for i, port := range ports {
		in := pipe.New(4 * streamBuffer)
		ws.inputs[byte(2*i)] = in
		channels[i] = &portChannel{ws: ws, in: in, data: ws.newChannelWriter(byte(2 * i)), errors: ws.newChannelWriter(byte(2*i + 1)), port: port}
	}
	return s.forwardChannels(c, ws, channels)
}

// writeChannel writes data to the input pipe of a channel, and blocks while the pipe is full.
func (s *session) writeChannel(input *pipe.Pipe, data []byte, blocksOthers bool) {
	limit := s.server.opts.BlockedForwardTimeout
	if !blocksOthers {
		limit = 0
	}
	// a channel that blocks others is reset after a while
	if _, err := input.WriteWithTimeout(data, limit); err == pipe.ErrFull { //nolint:errorlint // it is returned bare
		input.Abort(fmt.Errorf("channel was reset: %w, and other channels wait", err))
	}
}

// forwardChannels forwards one connection per channel. When all connections have ended or the session is canceled, it closes
// conn and returns.
func (s *session) forwardChannels(conn *conn, ws *webSocket, channels []*portChannel) error {
	clientClosed := make(chan struct{})
	s.tasks.Go(func() {
		defer close(clientClosed)
		defer ws.closeInputs()
		ws.readMessages()
		s.cancel(errClientGone)
	})
	var tasks sync.WaitGroup
	for _, channel := range channels {
		number := binary.LittleEndian.AppendUint16(nil, uint16(channel.port))
		for _, to := range []io.Writer{channel.data, channel.errors} {
			if _, err := to.Write(number); err != nil {
				s.cancel(errClientGone)
			}
		}
	}
	for _, channel := range channels {
		tasks.Go(func() {
			if err := s.runForward(channel.port, channel); err != nil {
				_, _ = io.WriteString(channel.errors, err.Error())
			}
			channel.in.Abort(errSessionOver)
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
		for _, channel := range channels {
			channel.in.Abort(s.endReason())
		}
		waitFor(&tasks, runnerTimeout)
	}
	_ = ws.frames.WriteClose(websocket.Normal, "")
	conn.closeGracefully(clientClosed)
	return nil
}

// portChannel is the data channel of one port. It is the connection that a Runner forwards.
type portChannel struct {
	ws           *webSocket
	in           *pipe.Pipe
	data, errors io.Writer
	port         int32
}

// Read reads data of the client.
func (p *portChannel) Read(b []byte) (int, error) { return p.in.Read(b) }

// Write sends b to the client.
func (p *portChannel) Write(b []byte) (int, error) { return p.data.Write(b) }

// Close discards further data of the client.
func (p *portChannel) Close() error {
	p.in.Abort(io.ErrClosedPipe)
	return nil
}
