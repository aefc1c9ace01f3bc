// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

// Protocols returns the protocols for exec and attach, which are the values of Command.Protocol.
func Protocols() []string {
	return []string{
		"SPDY channel.k8s.io", "SPDY v2.channel.k8s.io", "SPDY v3.channel.k8s.io", "SPDY v4.channel.k8s.io",
		"WebSocket ", "WebSocket channel.k8s.io", "WebSocket base64.channel.k8s.io",
		"WebSocket v4.channel.k8s.io", "WebSocket v4.base64.channel.k8s.io", "WebSocket v5.channel.k8s.io",
	}
}

// Command is the client of an exec or attach session.
type Command struct {
	URL      string
	Protocol string // a value of [Protocols]
	Stdin    io.Reader
	Stdout   io.Writer // nil: not requested
	Stderr   io.Writer // nil: not requested
	TTY      bool
	Sizes    []cri.TerminalSize // sent one after the other
	Header   http.Header        // added to the upgrade headers
}

// Run runs an exec or attach session until the server ends it. It returns the content of the error stream.
func (c Command) Run(ctx context.Context) (string, error) {
	kind, protocol, _ := strings.Cut(c.Protocol, " ")
	if kind == "SPDY" {
		return c.runSPDY(ctx, protocol)
	}
	return c.runWebSocket(ctx, protocol)
}

func (c Command) mergeHeaders(more http.Header) http.Header {
	h := c.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	maps.Copy(h, more)
	return h
}

func (c Command) runSPDY(ctx context.Context, protocol string) (string, error) {
	u, err := Upgrade(ctx, http.MethodPost, c.URL, c.mergeHeaders(http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {protocol},
	}))
	if err != nil {
		return "", err
	}
	if err := u.checkSwitched(); err != nil {
		return "", err
	}
	defer u.Close()
	stop := context.AfterFunc(ctx, func() { _ = u.Close() })
	defer stop()
	mux, err := spdy.New(u.Reader, u, spdy.Options{IsClient: true})
	if err != nil {
		return "", err
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer u.Close()
	tasks.Go(func() { _ = mux.Serve() })
	open := func(kind string, wanted bool) (s *spdy.Stream) {
		if !wanted || err != nil {
			return nil
		}
		if s, err = mux.Open(http.Header{"streamType": {kind}}); err == nil {
			err = s.AwaitReply(ctx)
		}
		return s
	}
	fault := open("error", true)
	stdin := open("stdin", c.Stdin != nil)
	stdout := open("stdout", c.Stdout != nil)
	stderr := open("stderr", c.Stderr != nil)
	resize := open("resize", c.TTY && protocol >= "v3")
	if err != nil {
		return "", err
	}
	if resize != nil {
		for _, one := range c.Sizes {
			if err := json.NewEncoder(resize).Encode(one); err != nil {
				return "", err
			}
		}
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, c.Stdin)
			_ = stdin.CloseWrite()
		}()
	}
	var outputs sync.WaitGroup
	if stdout != nil {
		outputs.Go(func() { _, _ = io.Copy(c.Stdout, stdout) })
	}
	if stderr != nil {
		outputs.Go(func() { _, _ = io.Copy(c.Stderr, stderr) })
	}
	text, err := io.ReadAll(fault)
	outputs.Wait()
	_ = mux.GoAway()
	return string(text), err
}

// Key is the Sec-WebSocket-Key header of all clients.
const Key = "dGhlIHNhbXBsZSBub25jZQ=="

// DialWebSocket opens a WebSocket. protocol is the value of the Sec-WebSocket-Protocol header: a list of protocols, or
// empty. The result conn is the connection with the response of the server, and ws is the WebSocket on it.
func DialWebSocket(ctx context.Context, url, protocol string, headers http.Header) (conn *Upgraded, ws *websocket.Conn, err error) {
	if headers == nil {
		headers = http.Header{}
	}
	headers.Set("Connection", "Upgrade")
	headers.Set("Upgrade", "websocket")
	headers.Set("Sec-Websocket-Key", Key)
	headers.Set("Sec-Websocket-Version", "13")
	if protocol != "" {
		headers.Set("Sec-Websocket-Protocol", protocol)
	}
	u, err := Upgrade(ctx, http.MethodGet, url, headers)
	if err != nil {
		return nil, nil, err
	}
	if err := u.checkSwitched(); err != nil {
		return nil, nil, err
	}
	if got := u.Response.Header.Get("Sec-Websocket-Accept"); got != websocket.AcceptKey(Key) {
		return nil, nil, closeWithError(u, fmt.Errorf("server accepts with %q", got))
	}
	if got := u.Response.Header.Get("Sec-Websocket-Protocol"); got != protocol && !strings.Contains(protocol, ",") {
		return nil, nil, closeWithError(u, fmt.Errorf("server chooses protocol %q of %q", got, protocol))
	}
	return u, websocket.New(u.Reader, u, true), nil
}

func (c Command) runWebSocket(ctx context.Context, protocol string) (string, error) {
	u, ws, err := DialWebSocket(ctx, c.URL, protocol, c.mergeHeaders(nil))
	if err != nil {
		return "", err
	}
	defer u.Close()
	stop := context.AfterFunc(ctx, func() { _ = u.Close() })
	defer stop()
	w := sender{ws, strings.Contains(protocol, "base64")}
	for _, one := range c.Sizes {
		b, err := json.Marshal(one)
		if err != nil {
			return "", err
		}
		if err := w.sendMessage(4, b); err != nil {
			return "", err
		}
	}
	if c.Stdin != nil {
		go func() {
			_, _ = io.Copy(channel{w, 0}, c.Stdin)
			if strings.HasPrefix(protocol, "v5") {
				_, _ = ws.WriteBinary([]byte{255}, []byte{0})
			}
		}()
	}
	return c.readMessages(ws, w.base64)
}

// readMessages copies messages to Stdout and Stderr until the server closes the WebSocket. It returns the content of the
// error channel.
func (c Command) readMessages(ws *websocket.Conn, inBase64 bool) (string, error) {
	var fault bytes.Buffer
	for {
		if err := ws.NextMessage(); err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) && closed.Code == websocket.Normal {
				err = nil
			}
			return fault.String(), err
		}
		var number [1]byte
		if _, err := io.ReadFull(ws, number[:]); err != nil {
			return fault.String(), fmt.Errorf("message without a channel: %w", err)
		}
		var r io.Reader = bufio.NewReader(ws)
		if inBase64 {
			number[0] -= '0'
			r = base64.NewDecoder(base64.StdEncoding, r)
		}
		to := map[byte]io.Writer{1: c.Stdout, 2: c.Stderr, 3: &fault}[number[0]]
		if to == nil {
			return fault.String(), fmt.Errorf("message on channel %d", number[0])
		}
		if _, err := io.Copy(to, r); err != nil {
			return fault.String(), err
		}
	}
}

// sender sends messages on the channels of a WebSocket.
type sender struct {
	ws     *websocket.Conn
	base64 bool
}

func (s sender) sendMessage(number byte, b []byte) error {
	if s.base64 {
		_, err := s.ws.WriteText([]byte{'0' + number}, base64.StdEncoding.AppendEncode(nil, b))
		return err
	}
	_, err := s.ws.WriteBinary([]byte{number}, b)
	return err
}

// channel is a writer that sends its data on one channel, in messages that fit into one frame.
type channel struct {
	sender

	number byte
}

// Write sends b on the channel in messages of at most 16 KiB.
func (c channel) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(len(b), n+16<<10)]
		if err := c.sendMessage(c.number, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func decodeBase64(b []byte) ([]byte, error) { return base64.StdEncoding.AppendDecode(nil, b) }
