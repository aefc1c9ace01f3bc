// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

// Channel numbers of a WebSocket for exec and attach. A message on channelClose contains the number of the channel that the
// client closes.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelError
	channelSize
	channelClose = 255
)

// webSocket is a WebSocket connection. Each message starts with the number of its channel.
type webSocket struct {
	frames     *websocket.Conn
	base64     bool
	closable   bool
	inputs     map[byte]*pipe.Pipe // by channel; messages to other channels are dropped
	writeInput func(*pipe.Pipe, []byte)
}

// upgradeWebSocket hijacks the connection of a request and upgrades it to a WebSocket with this protocol.
func (s *session) upgradeWebSocket(w http.ResponseWriter, r *http.Request, protocol string) (*conn, *websocket.Conn, error) {
	c, err := s.hijackConn(w)
	if err != nil {
		return nil, nil, err // not hijacked
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		websocket.AcceptKey(r.Header.Get("Sec-Websocket-Key")) + "\r\n"
	if protocol != "" {
		head += "Sec-WebSocket-Protocol: " + protocol + "\r\n"
	}
	_, err = io.WriteString(c, head+"\r\n")
	return c, websocket.New(c.newReader(), c, false), err
}

func (s *session) openWebSocket(
	w http.ResponseWriter, r *http.Request, opts cri.StreamOptions, protocol string,
) (*client, bool, error) {
	conn, frames, err := s.upgradeWebSocket(w, r, protocol)
	if conn == nil || err != nil {
		return nil, conn != nil, err
	}
	ws := &webSocket{
		frames: frames, base64: protocol == upgrade.Base64V1 || protocol == upgrade.Base64V4, closable: protocol == upgrade.ChannelV5,
		inputs: map[byte]*pipe.Pipe{channelSize: pipe.New(streamBuffer)},
	}
	c := &client{conn: conn, closed: make(chan struct{})}
	c.TTY = opts.TTY
	first := byte(channelError) // an empty message on it starts the session
	if opts.Stderr {
		c.Stderr, first = ws.newChannelWriter(channelStderr), channelStderr
	}
	if opts.Stdout {
		c.Stdout, first = ws.newChannelWriter(channelStdout), channelStdout
	}
	if opts.Stdin {
		in := pipe.New(streamBuffer)
		ws.inputs[channelStdin], c.Stdin, c.inputs = in, in, append(c.inputs, in)
	}
	c.startResize(ws.inputs[channelSize], ws.inputs[channelSize])
	asJSON := protocol == upgrade.ChannelV4 || protocol == upgrade.Base64V4 || protocol == upgrade.ChannelV5
	c.sendStatus = func(result status) {
		if b := result.encode(asJSON); len(b) > 0 {
			_, _ = ws.newChannelWriter(channelError).Write(b)
		}
		_ = ws.frames.WriteClose(websocket.Normal, "")
	}
	c.tasks.Go(func() {
		defer close(c.closed)
		defer ws.closeInputs()
		ws.readMessages()
	})
	_, err = ws.newChannelWriter(first).Write(nil)
	if err != nil {
		c.closeWithStatus(nil)
	}
	return c, true, err
}

// readMessages copies each message to the input pipe of its channel, until the client closes the connection or violates the
// protocol.
func (ws *webSocket) readMessages() {
	buf := make([]byte, 4<<10)
	for {
		if err := ws.frames.NextMessage(); err != nil {
			return
		}
		var number [1]byte
		switch _, err := io.ReadFull(ws.frames, number[:]); {
		case err == io.EOF: // an empty message
			continue
		case err != nil:
			return
		}
		if ws.closable && number[0] == channelClose {
			if err := ws.closeChannel(); err != nil {
				_ = ws.frames.WriteClose(websocket.ProtocolError, err.Error())
				return
			}
			continue
		}
		if ws.base64 {
			number[0] -= '0'
		}
		in := ws.inputs[number[0]]
		if in == nil || in.IsClosed() {
			continue
		}
		if len(buf) < streamBuffer/2 && ws.frames.HasMoreThan(len(buf)) {
			buf = make([]byte, streamBuffer/2)
		}
		ws.copyMessage(in, buf)
	}
}

// copyMessage copies the current message to the input pipe of its channel. buf is the buffer for reading. Invalid base64
// data ends the copy.
func (ws *webSocket) copyMessage(input *pipe.Pipe, buf []byte) {
	var r io.Reader = ws.frames
	if ws.base64 {
		r = base64.NewDecoder(base64.StdEncoding, ws.frames)
	}
	for {
		n, err := r.Read(buf)
		if ws.writeInput != nil {
			ws.writeInput(input, buf[:n])
		} else if _, err := input.Write(buf[:n]); err != nil {
			return // NextMessage drops the remaining message
		}
		if err != nil {
			return
		}
	}
}

// closeChannel closes the input pipe of the channel in a close signal, which clients of protocol version 5 send.
func (ws *webSocket) closeChannel() error {
	var rest [2]byte
	if n, _ := io.ReadFull(ws.frames, rest[:]); n != 1 {
		return errors.New("close signal must name one channel")
	}
	if rest[0] > channelSize {
		return fmt.Errorf("close signal names unknown channel %d", rest[0])
	}
	if in := ws.inputs[rest[0]]; in != nil {
		in.CloseWrite()
	}
	return nil
}

// closeInputs signals the end of input on all channels.
func (ws *webSocket) closeInputs() {
	for _, in := range ws.inputs {
		in.CloseWrite()
	}
}

// newChannelWriter returns a writer that sends messages on the channel with this number.
func (ws *webSocket) newChannelWriter(number byte) io.Writer { return channelWriter{ws, number} }

type channelWriter struct {
	ws     *webSocket
	number byte
}

// Write sends b as messages on the channel of c. With base64 encoding, a message has at most 32 KiB. An empty b is sent as
// an empty message.
func (c channelWriter) Write(b []byte) (int, error) {
	if !c.ws.base64 {
		return c.ws.frames.WriteBinary([]byte{c.number}, b)
	}
	const most = 24 << 10 // 32 KiB in base64
	n := 0
	for {
		part := b[n:min(len(b), n+most)]
		text := base64.StdEncoding.AppendEncode(nil, part)
		if _, err := c.ws.frames.WriteText([]byte{'0' + c.number}, text); err != nil {
			return n, err
		}
		if n += len(part); n >= len(b) {
			return n, nil
		}
	}
}
