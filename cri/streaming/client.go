// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// streamBuffer is the number of bytes that are buffered for a stream of a client before they are read.
const streamBuffer = 64 << 10

// errSessionOver is the error of reads from a client's streams after the session has ended.
var errSessionOver = errors.New("session has ended")

// client has the streams of the client in an exec or attach session. It does not depend on the protocol of the client.
type client struct {
	cri.Session

	conn       *conn
	closed     chan struct{}  // closed when nothing more can be read from the client
	tasks      sync.WaitGroup // goroutines that read from the client
	inputs     []*pipe.Pipe   // buffers that tasks write to or wait for
	sendStatus func(status)   // sends the final status of the session to the client
}

// openClient upgrades the connection of an exec or attach request, and waits until the client has opened its streams.
func (s *session) openClient(w http.ResponseWriter, r *http.Request, opts cri.StreamOptions) (client *client, taken bool, err error) {
	if upgrade.IsWebSocket(r) {
		protocol, refusal := upgrade.NegotiateWebSocket(r, commandWebSockets(r))
		if refusal != nil {
			return nil, false, refusal
		}
		return s.openWebSocket(w, r, opts, protocol)
	}
	protocol, refusal := upgrade.NegotiateSPDY(r, []string{upgrade.ChannelV4, upgrade.ChannelV3, upgrade.ChannelV2, upgrade.ChannelV1})
	if refusal != nil {
		return nil, false, refusal
	}
	// until the connection is taken over, the caller sends errors as an HTTP response
	return s.openSPDY(w, opts, protocol)
}

// commandWebSockets returns the WebSocket protocols that an exec or attach client may use.
func commandWebSockets(r *http.Request) []string {
	if upgrade.IsClosable(r) {
		// a client that offers version 5 must use it, as in the kubelet
		return []string{upgrade.ChannelV5}
	}
	return []string{"", upgrade.ChannelV1, upgrade.Base64V1, upgrade.ChannelV4, upgrade.Base64V4}
}

// abortInputs makes all pending and later reads of the client's streams fail.
func (c *client) abortInputs() {
	for _, in := range c.inputs {
		in.Abort(errSessionOver)
	}
}

// closeWithStatus sends the status, unless it is nil, waits until the client has read it, and closes the connection.
func (c *client) closeWithStatus(result *status) {
	c.abortInputs()
	if result != nil {
		c.sendStatus(*result)
	}
	c.conn.closeGracefully(c.closed)
	c.tasks.Wait()
}

// maxSize limits the number of bytes of one terminal size that a client sends.
const maxSize = 4 << 10

// decodeSizes decodes terminal sizes from r and sends them to a channel of capacity 1, in which a newer size replaces an
// unread one.
func decodeSizes(r io.Reader, sizes chan cri.TerminalSize) {
	defer close(sizes)
	limited := &io.LimitedReader{R: r}
	decoder := json.NewDecoder(limited)
	for {
		limited.N = maxSize
		var size cri.TerminalSize
		if err := decoder.Decode(&size); err != nil {
			_, _ = io.Copy(io.Discard, r)
			return
		}
		select {
		case <-sizes: // an older size that was not received
		default:
		}
		sizes <- size // this is the only sender
	}
}

// awaitStreams waits until the client has opened its streams, or returns the error of a timeout or of the end of the
// session.
func (c *client) awaitStreams(session *session, opened <-chan struct{}) error {
	t := time.NewTimer(session.server.opts.CreationTimeout)
	defer t.Stop()
	select {
	case <-opened:
		return nil
	case <-t.C:
		return fmt.Errorf("timed out waiting %v for client to create streams", session.server.opts.CreationTimeout)
	case <-c.closed:
		return errClientGone
	case <-session.ctx.Done():
		return session.endReason()
	}
}
